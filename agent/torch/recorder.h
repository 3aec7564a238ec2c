#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "agent/capture/diff_check.h"
#include "agent/capture/fragment_builder.h"
#include "agent/capture/name_filter.h"
#include "agent/capture/pass_count.h"
#include "agent/capture/request_rows.h"
#include "agent/capture/token_window.h"
#include "agent/core/config/config.h"
#include "agent/core/log.h"
#include "agent/core/pool.h"
#include "agent/core/session.h"
#include "agent/torch/tensor/tensor_reader.h"

namespace msprobe::capture {

class ModuleCall;

// One function whose calls are recorded. Lives as long as the process.
struct Api {
  std::string name;  // "Functional.linear"
  core::RiskLevel risk = core::RiskLevel::kFocus;
  bool is_dropout = false;
  bool is_distributed = false;  // the output is the arguments after the call
  std::vector<int> ignored_inputs;
  std::vector<int> ignored_outputs;
  std::string ignored_keyword;
};

// A record that has begun: where it stands and whether it is wanted. Small; copied into backward hooks.
struct OpenRecord {
  std::shared_ptr<const std::string> name;  // without count and direction
  core::RecordKind kind = core::RecordKind::kApi;
  core::Direction direction = core::Direction::kForward;
  uint32_t step = 0;
  uint32_t token = 0;
  uint32_t count = 0;
  uint32_t pass = 0;                  // of a backward record: over the same forward call, in the step
  std::shared_ptr<PassCount> passes;  // of a forward record: null where no backward will begin
  uint64_t ordinal = 0;
  uint32_t thread = 0;
  core::ParentId parent = 0;
  core::ParentId self = 0;    // as a parent of others, from PushModule on
  bool selected = false;      // by scope, list and risk level
  bool wanted = false;        // stands in dump.json: selected, and of a direction that data_mode names
  bool in_construct = false;  // stands in construct.json
  bool entered = false;       // its ENTER was emitted with fields
  bool save = false;          // keep the tensors' bytes
  bool recompute = false;     // of activation checkpointing's second forward

  std::string FullName() const;
  void AppendFullName(std::string* text) const;
};

// What one thread is inside of. Only its own thread touches it.
struct ThreadState {
  explicit ThreadState(uint32_t thread_number) : number(thread_number) {}

  struct OpenModule {
    std::shared_ptr<ModuleCall> call;
    core::ParentId name = 0;
  };
  const uint32_t number;            // small, from 0, in order of first use
  uint32_t generation = 0;          // of the recorder whose modules are listed
  uint32_t lane = 0;                // its place among the threads that record in the step
  uint32_t lane_epoch = 0;          // the Recorder::lanes_epoch() of which `lane` is
  int api_depth = 0;                // inside a recorded API: what it calls is its own business
  int suppressed = 0;               // inside something that is never recorded (printing a tensor)
  std::vector<OpenModule> modules;  // forward and backward, innermost last
  FragmentBuilder builder;
  std::string text;  // for what is written, used and forgotten; keeps its memory

  static ThreadState& Get();
};

// Turns calls into records of one session: names and counts them, asks the filters, orders and emits their fragments.
//
// Threads: every method from any thread, with or without the GIL. Nothing here throws but what libtorch throws while
// reading a tensor; callers contain it with Contain.
class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  Recorder(core::Config config, std::shared_ptr<core::Session> session);

  const core::Config& config() const { return config_; }
  core::Session& session() { return *session_; }
  const TensorReader& reader() const { return reader_; }
  uint32_t generation() const { return generation_; }
  // Another number in each step of each recorder. The caller of BeginApi and BeginModule has set ThreadState::lane to
  // the thread's place in it.
  uint32_t lanes_epoch() const { return lanes_epoch_.load(std::memory_order_relaxed); }

  bool capturing() const { return watching() && inside_.load(std::memory_order_relaxed); }
  // tokens: only these forward passes of the root; capturing() is false outside of them, watching() until Stop.
  void Start(uint32_t step, std::optional<TokenWindow::Range> tokens = std::nullopt);
  // Captures into `step` as well, forward passes counted on.
  void GoOn(uint32_t step);
  void Stop();
  bool watching() const { return watching_.load(std::memory_order_acquire); }
  // What a step has had.
  struct StepContents {
    bool passes = false;   // of the root module
    bool calls = false;    // of what is captured, whether or not a filter wanted them
    bool records = false;  // that stand in dump.json
  };
  // Ends `step` (or forgets it), and resets counts, ordinals and tokens.
  StepContents EndStep(uint32_t step, bool keep);
  uint32_t step() const { return step_.load(std::memory_order_relaxed); }

  RequestRows& request_rows() { return request_rows_; }
  // Null without bench_path.
  DiffCheck* diff_check() { return diff_check_.get(); }

  // Whether fields of this side are recorded at all (task structure, data_mode).
  bool WantsInput(core::Direction direction) const;
  bool WantsOutput(core::Direction direction) const;

  // The root module was called: the next forward pass of the step begins. Gives its token.
  uint32_t BeginToken();

  // Begins the forward record of an API call or module, and counts it. Modules also go on the thread's stack
  // (through PushModule, by the caller).
  OpenRecord BeginApi(const Api& api, ThreadState& thread);
  OpenRecord BeginModule(const std::shared_ptr<const std::string>& name, ThreadState& thread);
  // Begins the backward record that belongs to a forward one: of another pass over it each time.
  OpenRecord BeginBackward(const OpenRecord& forward, bool apply_risk, core::RiskLevel risk, ThreadState& thread);
  // The record that was begun last, again, for fields that come apart from the others: it keeps its place.
  OpenRecord BackwardOf(const OpenRecord& forward, bool apply_risk, core::RiskLevel risk);
  // A gradient of a parameter was accumulated. Gives the record it belongs to.
  OpenRecord BeginParameterGradient(const std::shared_ptr<const std::string>& module, const std::string& parameter,
                                    ThreadState& thread);
  OpenRecord BeginDebug(std::string_view name, uint32_t count);

  // Asks the filters again where the call ends: the end of a scope may lie inside it.
  void Recheck(OpenRecord& record, bool apply_risk, core::RiskLevel risk);

  void PushModule(ThreadState& thread, std::shared_ptr<ModuleCall> call, OpenRecord& record);
  void PopModule(ThreadState& thread, const OpenRecord& record);

  // The parent of API calls meanwhile, whatever module they are in: "optimizer", "clip_grad", or empty.
  void SetPhase(std::string_view phase);

  // Emits what `builder` holds as a fragment of `record`.
  void Emit(OpenRecord& record, FragmentBuilder& builder, uint32_t flags, core::StackId stack = 0);
  // Emits a fragment of a record that is not wanted but stands in construct.json or, where `stack` is given, in
  // stack.json; nothing otherwise.
  void EmitConstructOnly(const OpenRecord& record, core::StackId stack = 0);
  // Prepares `builder` for a fragment of `record`.
  static void StartFragment(const OpenRecord& record, FragmentBuilder& builder);

  // Runs `body`; what it throws becomes a counted fault of `where` and a line of dump_error_info.log.
  template <typename Body>
  void Contain(const OpenRecord& where, Body&& body) noexcept {
    try {
      body();
    } catch (const std::exception& error) {
      Fault(where, error.what());
    } catch (...) {
      Fault(where, "unknown exception");
    }
  }
  void Fault(const OpenRecord& where, std::string_view message) noexcept;

 private:
  bool WantsDirection(core::Direction direction) const;  // by data_mode
  // The place of a call among those of its name in this step. Calls of one thread are numbered by themselves, from
  // lane * kThreadStride, so that numbers do not depend on how threads interleave.
  uint32_t NextCount(const std::string& name, const ThreadState& thread, bool recompute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  core::ParentId ParentOf(const ThreadState& thread) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sets `selected` and `wanted`.
  void Judge(OpenRecord& record, bool apply_risk, core::RiskLevel risk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Saves(const OpenRecord& record) const;
  // Compares what ends with the other dump (DiffCheck), and emits again what was held of its begin.
  void CompareBeforeEmit(OpenRecord& record, FragmentBuilder& builder, uint32_t flags);
  void EmitFragment(const OpenRecord& record, FragmentBuilder& builder, uint32_t flags, core::StackId stack);
  core::StructureId StructureOf(const FragmentBuilder& builder);

  const core::Config config_;
  const std::shared_ptr<core::Session> session_;
  RequestRows request_rows_;
  const TensorReader reader_;
  const std::unique_ptr<DiffCheck> diff_check_;
  const core::Log log_;
  const uint32_t generation_;
  std::atomic<uint32_t> lanes_epoch_;
  std::atomic<bool> watching_{false};
  std::atomic<bool> inside_{true};  // of window_
  std::atomic<uint32_t> step_{0};
  std::atomic<bool> has_records_{false};  // of the step
  std::atomic<uint32_t> lost_faults_{0};

  absl::Mutex mu_;
  NameFilter filter_ ABSL_GUARDED_BY(mu_);
  TokenWindow window_ ABSL_GUARDED_BY(mu_);
  uint64_t next_ordinal_ ABSL_GUARDED_BY(mu_) = 0;
  uint32_t token_ ABSL_GUARDED_BY(mu_) = 0;
  bool token_seen_ ABSL_GUARDED_BY(mu_) = false;
  // By lane; what stood in an earlier step stays, with 0.
  std::vector<core::PooledTextMap<uint32_t>> counts_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<const void*, std::shared_ptr<const std::string>> api_names_ ABSL_GUARDED_BY(mu_);
  core::ParentId phase_ ABSL_GUARDED_BY(mu_) = 0;
  struct GradientCount {
    uint32_t epoch = 0;  // what follows is of the step with this lanes_epoch()
    std::string first_parameter;
    uint32_t count = 0;
    uint32_t token = 0;
  };
  core::PooledTextMap<GradientCount> gradient_counts_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<std::string> modules_with_backward_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<std::string, uint64_t> debug_ordinals_ ABSL_GUARDED_BY(mu_);

  absl::Mutex structures_mu_;
  core::PooledTextMap<core::StructureId> structures_ ABSL_GUARDED_BY(structures_mu_);  // by signature
};

}  // namespace msprobe::capture
