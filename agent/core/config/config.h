#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "agent/core/config/capture_schedule.h"
#include "agent/core/session.h"

namespace msprobe::core {

// Which tensors need not be read again while the kernel says that nobody wrote them; RememberedStatistics has the
// rules.
enum class Reuse : uint8_t { kOff, kParameters, kAll };
enum class Task : uint8_t {
  kStatistics,
  kTensor,
  kStructure,
  kDiffCheck,
  kNanCheck,
  kCheck,
  kMonitor,
  kGradProbe,
  kFreeBenchmark,
};
enum class Level : uint8_t { kL0, kL1, kMix, kDebug };
enum class SummaryMode : uint8_t { kStatistics, kMd5, kXor };
enum class RiskLevel : uint8_t { kCore, kFocus, kAll };

// One element of `slice`: dimension `dim` is cut to [begin, end). Without `end` the cut goes to the end. With a `size`
// above 0 it applies only to tensors whose dimension has that size.
struct SliceRule {
  int64_t dim = 0;
  std::optional<int64_t> size;
  int64_t begin = 0;
  std::optional<int64_t> end;
  bool operator==(const SliceRule&) const = default;
};

// `load`: the forward inputs of some modules are replaced by those of an earlier dump.
struct LoadConfig {
  std::string path;                  // absolute; a dump_path of that dump
  std::vector<std::string> modules;  // "Module.layers.0.Linear.forward.0"
  std::vector<uint32_t> step;        // sorted; empty: all
  std::vector<uint32_t> rank;        // sorted; empty: all
  bool dump_after_load = false;      // false: inputs are replaced and nothing is recorded
};

// Task check: which calls are captured with their tensors, to be run again by workers beside the job.
struct CheckConfig {
  enum class Sample : uint8_t { kTurns, kFirst, kIdentity };
  enum class Keep : uint8_t { kWrong, kAll };
  static constexpr double kShareOfStep = 0.02;  // of the step before, where no time is given

  Sample sample = Sample::kTurns;
  uint64_t budget_bytes = uint64_t{16} << 20;  // of tensors a step
  absl::Duration budget_time;       // of the program's threads a step; 0: kShareOfStep, or no limit (kIdentity)
  std::string golden = "cpu-fp64";  // or a run; "none": this one is another's
  absl::Duration golden_wait = absl::Minutes(10);  // for a run
  Keep keep = Keep::kWrong;                        // whose tensors the server keeps
  std::string policy = "default";                  // of verdicts
};

// Task monitor: which tensors of a training run become series, and how often.
struct MonitorConfig {
  bool weight_grad = true;
  bool micro_batches = false;  // the weights' gradients as each micro-batch leaves them
  bool moments = true;         // of the optimizer
  bool parameters = true;
  bool update_ratio = true;
  bool communication = false;             // calls between ranks
  uint64_t interval = 1;                  // every so many steps
  uint64_t activations = 10;              // every so many steps modules are captured; 0: never
  std::vector<std::string> model_series;  // what only some models have: "attention", ...
  std::string routers = R"(type("*Router") | Linear & name("*.gate") | Linear & name("*router"))";  // a Selector
  std::vector<std::string> ops = {"min", "max", "mean", "norm",
                                  "nan"};  // names of msprobe.v1.Statistic, or of TensorSeries
};

// Task grad_probe: what is kept of the gradients of parameters at each call of an optimizer.
struct GradProbeConfig {
  enum class GradLevel : uint8_t { kL0, kL1, kL2 };

  GradLevel level = GradLevel::kL1;         // L0: checksums; L1: signs; L2: also how the values are distributed
  std::vector<std::string> parameters;      // whole names; empty: all
  std::vector<double> bounds = {-1, 0, 1};  // of the intervals of L2, growing
  bool signs() const { return level != GradLevel::kL0; }
};

// Task free_benchmark: how each API call that is selected runs a second time, in the program, and what follows.
struct FreeBenchmarkConfig {
  enum class Device : uint8_t { kOwn, kCpu };  // kOwn: where the tensors are
  enum class Mode : uint8_t { kImprovePrecision, kBitNoise, kAddNoise, kChangeValue, kNoChange, kToCpu };
  enum class Handler : uint8_t { kCheck, kFix };
  enum class Level : uint8_t { kL1 };
  enum class Stage : uint8_t { kForward, kBackward };

  Device device = Device::kOwn;
  Mode mode = Mode::kImprovePrecision;
  Handler handler = Handler::kCheck;  // kFix: the second run's output takes the place of the first's
  Level level = Level::kL1;
  Stage stage = Stage::kForward;
  bool preheat = false;  // each API finds its own limit
  uint64_t preheat_steps = 15;
  uint64_t max_sample = 20;  // calls of an API in a step of the preheat
};

// Which steps, ranks and records are captured, and which parts of their tensors.
struct Selection {
  std::vector<uint32_t> rank;  // sorted; empty: all
  std::vector<uint32_t> step;  // sorted; empty: all
  std::optional<CaptureSchedule> schedule;
  RiskLevel risk_level = RiskLevel::kFocus;
  std::vector<std::string> custom_op_namespaces = {"_C_ascend"};  // of torch.ops, recorded as APIs
  std::vector<std::string> scope;                                 // empty or two full names
  std::vector<std::string> list;                                  // each a NamePattern
  std::string select;                                             // a Selector; empty: everything
  std::vector<std::string> tensor_list;
  bool forward = true, backward = true, input = true, output = true;  // data_mode
  std::vector<SliceRule> slice;
  std::string request_id;    // only the token rows of this request; empty: all rows
  bool capture_all = false;  // "capture": "all"
};

// A configuration that has been checked as a whole. The initial values are the defaults. agent/core/config/fields.cc
// lists the fields of config.json, and says for each into which member it is read.
struct Config : Selection {
  Task task = Task::kStatistics;
  Level level = Level::kL1;
  std::string dump_path;            // absolute
  std::optional<bool> dump_enable;  // absent: on, and the file is read once; present: read again when it changes
  bool extra_info = true;
  bool async_dump = false;      // checked, but capture is always asynchronous
  bool precision_high = false;  // doubles throughout, and Mean and Norm of every dtype that has them
  SummaryMode summary_mode = SummaryMode::kStatistics;
  std::string bench_path;  // absolute; a dump_path whose checksums each record is compared with; empty: none
  int64_t diff_nums = 1;   // so many differing records keep their tensors, then comparing ends; -1: no end
  std::optional<LoadConfig> load;
  CheckConfig check;
  MonitorConfig monitor;
  GradProbeConfig grad_probe;
  FreeBenchmarkConfig free_benchmark;
  SessionConfig session;
  std::string run;         // empty: chosen by ChooseRunName
  uint64_t max_steps = 0;  // captured, then capturing ends; 0: no end
  Reuse reuse = Reuse::kParameters;
  uint64_t reading_threads = 7;       // that help to read a large tensor, at most
  bool edges = true;                  // "edges": "on"
  bool exact_backward = false;        // "backward": "exact"
  bool linear_weight_grad = false;    // the weight's gradient in the backward record of a linear
  std::string json;                   // with the overrides, for CaptureSettings.config_json
  std::vector<std::string> warnings;  // unknown fields and the like, for the log
};

// Constructor arguments of PrecisionDebugger. They take the place of the file's fields.
struct ConfigOverrides {
  std::optional<std::string> task, dump_path, level, select;
  std::optional<std::vector<std::string>> step;  // each "3" or "3-5"
  std::optional<std::string> schedule;           // JSON
};

// Reads and checks config.json. The rules and defaults are those of mindstudio-probe, plus our own fields. A variable
// of the environment takes the place of a field that the file leaves out or empty, where Field.environment names one.
// InvalidArgument names the field, the value and what is allowed.
absl::StatusOr<Config> ParseConfig(std::string_view json, const ConfigOverrides& overrides);

// The facts about a configuration that the server is told, with the framework that is captured.
CaptureSettings SettingsOf(const Config& config, std::string_view framework);

// The files that variables of the environment name: MSPROBE_SERVER_CA and its like.
ServerAccess AccessOfEnvironment();

// Names in messages and in CaptureSettings: "statistics", "L1", "md5", ...
std::string_view ToString(Task task);
std::string_view ToString(Level level);
std::string_view ToString(SummaryMode mode);
std::string_view ToString(LossPolicy policy);

// In bytes; the server refuses longer ones.
inline constexpr size_t kLongestRunName = 255;

// DESIGN: ranks of one launch (TORCHELASTIC_RUN_ID, or MASTER_ADDR and MASTER_PORT) join one run; otherwise each
// process has its own run, named by program and time.
std::string ChooseRunName(std::string_view program);

}  // namespace msprobe::core
