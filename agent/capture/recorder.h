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
#include "agent/capture/memory_reader.h"
#include "agent/capture/name_filter.h"
#include "agent/capture/open_record.h"
#include "agent/capture/step_numbers.h"
#include "agent/capture/structure_ids.h"
#include "agent/capture/tensor_source.h"
#include "agent/capture/thread_state.h"
#include "agent/capture/token_window.h"
#include "agent/core/config/config.h"
#include "agent/core/log.h"
#include "agent/core/session.h"

namespace msprobe::capture {

// Turns calls into records of one session: names and counts them, asks the filters, orders and emits their fragments.
// The framework behind the calls is known to the TensorSource alone.
//
// Threads: every method from any thread, with or without the GIL. Nothing here throws but what the source throws while
// it reads a tensor; callers contain it with Contain.
class Recorder : public std::enable_shared_from_this<Recorder> {
 public:
  // `source` is not null.
  Recorder(core::Config config, std::shared_ptr<core::Session> session, std::unique_ptr<TensorSource> source);

  const core::Config& config() const { return config_; }
  core::Session& session() { return *session_; }
  TensorSource& source() { return *source_; }
  MemoryReader& memory() { return memory_; }
  const MemoryReader& memory() const { return memory_; }
  // Reads a tensor of the source's framework. save: also keep its bytes (OpenRecord::save).
  TensorReading Read(TensorRef tensor, bool save) const { return source_->Read(tensor, save, memory_); }
  uint32_t generation() const { return generation_; }
  // Another number in each step of each recorder. The caller of BeginApi and BeginModule has set ThreadState::lane to
  // the thread's place in that step.
  uint32_t lanes_epoch() const { return lanes_epoch_.load(std::memory_order_relaxed); }

  bool capturing() const { return watching() && inside_.load(std::memory_order_relaxed); }
  // tokens: only these forward passes of the root. Outside of them capturing() is false; watching() is true until Stop.
  void Start(uint32_t step, std::optional<TokenWindow::Range> tokens = std::nullopt);
  // Captures into `step` as well. Forward passes are counted on.
  void GoOn(uint32_t step);
  void Stop();
  bool watching() const { return watching_.load(std::memory_order_acquire); }
  // What came in a step.
  struct StepContents {
    bool passes = false;   // forward passes of the root module
    bool calls = false;    // calls that are captured, whether or not a filter wanted them
    bool records = false;  // records that stand in dump.json
  };
  // Ends `step` (or forgets it), and resets counts, ordinals and tokens.
  StepContents EndStep(uint32_t step, bool keep);
  uint32_t step() const { return step_.load(std::memory_order_relaxed); }

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
  // Begins the backward record that belongs to a forward one. Each time is another pass over the forward call.
  OpenRecord BeginBackward(const OpenRecord& forward, bool apply_risk, core::RiskLevel risk, ThreadState& thread);
  // The backward record that was begun last, again, for fields that come later than the others. It keeps its place.
  OpenRecord BackwardOf(const OpenRecord& forward, bool apply_risk, core::RiskLevel risk);
  // A gradient of a parameter was accumulated. Gives the record it belongs to.
  OpenRecord BeginParameterGradient(const std::shared_ptr<const std::string>& module, const std::string& parameter,
                                    ThreadState& thread);
  OpenRecord BeginDebug(std::string_view name, uint32_t count);

  // Asks the filters again where the call ends: the end of a scope may lie inside it.
  void Recheck(OpenRecord& record, bool apply_risk, core::RiskLevel risk);

  // `record` is the innermost parent on this thread until PopModule. call: as ThreadState::OpenModule has it.
  void PushModule(ThreadState& thread, std::shared_ptr<void> call, OpenRecord& record);
  void PopModule(ThreadState& thread, const OpenRecord& record);

  // From now on this is the parent of API calls, whatever module they are in: "optimizer", "clip_grad". Empty: none is.
  void SetPhase(std::string_view phase);

  // Emits what `builder` holds as a fragment of `record`.
  void Emit(OpenRecord& record, FragmentBuilder& builder, uint32_t flags, core::StackId stack = 0);
  // Emits a fragment without fields, for a record that is not wanted but stands in construct.json or, where `stack` is
  // given, in stack.json. Emits nothing otherwise.
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
  uint32_t NextCount(const std::string& name, const ThreadState& thread, bool recompute)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  core::ParentId ParentOf(const ThreadState& thread) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Sets `selected` and `wanted`.
  void Judge(OpenRecord& record, bool apply_risk, core::RiskLevel risk) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Saves(const OpenRecord& record) const;
  // Compares a record that ends with the other dump (DiffCheck). One that differs is emitted again from its beginning.
  void CompareBeforeEmit(OpenRecord& record, FragmentBuilder& builder, uint32_t flags);
  void EmitFragment(const OpenRecord& record, FragmentBuilder& builder, uint32_t flags, core::StackId stack);

  const core::Config config_;
  const std::shared_ptr<core::Session> session_;
  MemoryReader memory_;
  const std::unique_ptr<TensorSource> source_;
  const std::unique_ptr<DiffCheck> diff_check_;
  StructureIds structures_;
  const core::Log log_;
  const uint32_t generation_;
  std::atomic<uint32_t> lanes_epoch_;
  std::atomic<bool> watching_{false};
  std::atomic<bool> inside_{true};  // window_.inside()
  std::atomic<uint32_t> step_{0};
  std::atomic<bool> has_records_{false};  // in the step
  std::atomic<uint32_t> lost_faults_{0};

  absl::Mutex mu_;
  NameFilter filter_ ABSL_GUARDED_BY(mu_);
  TokenWindow window_ ABSL_GUARDED_BY(mu_);
  StepNumbers numbers_ ABSL_GUARDED_BY(mu_);
  uint32_t token_ ABSL_GUARDED_BY(mu_) = 0;
  bool token_seen_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_map<const void*, std::shared_ptr<const std::string>> api_names_ ABSL_GUARDED_BY(mu_);
  core::ParentId phase_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_set<std::string> modules_with_backward_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::capture
