#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/core/session.h"

namespace msprobe::core {

// What need not be read again because it is surely unchanged ("reuse"); RememberedStatistics has the rules.
enum class Reuse : uint8_t { kOff, kParameters, kAll };
enum class Task : uint8_t { kStatistics, kTensor, kStructure, kDiffCheck, kNanCheck };
enum class Level : uint8_t { kL0, kL1, kMix, kDebug };
enum class SummaryMode : uint8_t { kStatistics, kMd5, kXor };
enum class RiskLevel : uint8_t { kCore, kFocus, kAll };

// One element of `slice`: dimension `dim` is cut to [begin, end). end absent: to the end. size > 0: only tensors whose
// dimension has that size.
struct SliceRule {
  int64_t dim = 0;
  std::optional<int64_t> size;
  int64_t begin = 0;
  std::optional<int64_t> end;
};

// `load`: the forward inputs of some modules are replaced by those of an earlier dump.
struct LoadConfig {
  std::string path;                  // absolute; a dump_path of that dump
  std::vector<std::string> modules;  // "Module.layers.0.Linear.forward.0"
  std::vector<uint32_t> step;        // sorted; empty: all
  std::vector<uint32_t> rank;        // sorted; empty: all
  bool dump_after_load = false;      // false: inputs are replaced and nothing is recorded
};

// Constructor arguments of PrecisionDebugger that stand above the file.
struct ConfigOverrides {
  std::optional<std::string> task, dump_path, level;
  std::optional<std::vector<std::string>> step;  // each "3" or "3-5"
};

// A configuration that has been checked whole.
struct Config {
  Task task = Task::kStatistics;
  Level level = Level::kL1;
  std::string dump_path;            // absolute
  std::vector<uint32_t> rank;       // sorted; empty: all
  std::vector<uint32_t> step;       // sorted; empty: all
  std::optional<bool> dump_enable;  // absent: on, and the file is read once; present: read again when it changes
  bool extra_info = true;
  bool precision_high = false;  // doubles throughout, and Mean and Norm of every dtype that has them
  RiskLevel risk_level = RiskLevel::kFocus;
  std::vector<std::string> scope;  // empty or two full names
  std::vector<std::string> list;   // substrings, or name-regex(...); see NamePattern
  std::vector<std::string> tensor_list;
  bool forward = true, backward = true, input = true, output = true;  // data_mode
  SummaryMode summary_mode = SummaryMode::kStatistics;
  std::vector<SliceRule> slice;
  std::string request_id;  // only its token rows; empty: all rows
  std::string bench_path;  // absolute; a dump_path whose checksums each record is compared with; empty: none
  int64_t diff_nums = 1;   // so many differing records keep their tensors, then comparing ends; -1: no end
  std::vector<std::string> custom_op_namespaces = {"_C_ascend"};  // of torch.ops, recorded as APIs
  std::optional<LoadConfig> load;
  // Ours. Environment MSPROBE_SERVER and MSPROBE_RUN stand in where the file has none.
  std::string server;  // empty: embedded
  std::string run;     // empty: chosen by ChooseRunName
  LossPolicy loss_policy = LossPolicy::kSpool;
  uint64_t memory_ceiling_bytes = uint64_t{256} << 20;
  uint64_t spool_quota_bytes = uint64_t{4} << 30;
  double stall_bound_seconds = 30;
  bool shared_memory = true;
  std::string session_memory;     // a directory, or "off"; empty: MakeSessionMemory chooses
  uint64_t max_steps = 0;         // captured, then capturing ends; 0: no end
  uint64_t dump_quota_bytes = 0;  // of the embedded server's dump; 0: its default
  bool capture_all = false;       // "capture": "all"
  Reuse reuse = Reuse::kParameters;
  bool exact_backward = false;        // "backward": "exact"
  bool linear_weight_grad = false;    // the weight's gradient in the backward record of a linear
  std::string json;                   // as read, for CaptureSettings.config_json
  std::vector<std::string> warnings;  // unknown fields and the like, for the log
};

// Reads and checks config.json. The rules and defaults are those of mindstudio-probe's section 3 of its facts, plus
// the fields above. InvalidArgument names the field, the value and what is allowed.
absl::StatusOr<Config> ParseConfig(std::string_view json, const ConfigOverrides& overrides);

// Every field that ParseConfig knows, as docs/config.md lists them: "rank", "load.path", and those of a task's own
// section as "*.scope".
std::vector<std::string> ConfigFields();

// Why a field cannot be changed while the program runs, in a clause that names it; empty: it can. These are the fields
// of a task's section, and of the top those that say what is captured and how; where records go, what they go with and
// what the session may use is settled with the first of them.
std::string WhyFixed(std::string_view field);

// Names in messages and in CaptureSettings: "statistics", "L1", "md5", ...
std::string_view ToString(Task task);
std::string_view ToString(Level level);
std::string_view ToString(SummaryMode mode);

// DESIGN: ranks of one launch (TORCHELASTIC_RUN_ID, or MASTER_ADDR and MASTER_PORT) join one run; else one run a
// process, named by program and time.
std::string ChooseRunName(std::string_view program);

}  // namespace msprobe::core
