#include "agent/core/config/fields.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <utility>

#include "agent/core/config/field_access.h"
#include "agent/core/config/field_readers.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

using Kind = FieldForm::Kind;
using Section = Field::Section;

constexpr std::array<std::string_view, 9> kTasks = {"statistics", "tensor",  "structure",  "diff_check",    "nan_check",
                                                    "check",      "monitor", "grad_probe", "free_benchmark"};
constexpr std::array<std::string_view, 4> kLevels = {"L0", "L1", "mix", "debug"};
constexpr std::array<std::string_view, 3> kSummaryModes = {"statistics", "md5", "xor"};
constexpr std::array<std::string_view, 3> kRiskLevels = {"CORE", "FOCUS", "ALL"};
constexpr std::array<std::string_view, 2> kPrecisions = {"low", "high"};
constexpr std::array<std::string_view, 3> kLossPolicies = {"spool", "stall", "drop"};
constexpr std::array<std::string_view, 2> kCaptures = {"listed", "all"};
constexpr std::array<std::string_view, 2> kBackwards = {"observed", "exact"};
constexpr std::array<std::string_view, 2> kSwitch = {"off", "on"};
constexpr std::array<std::string_view, 3> kSamples = {"turns", "first", "identity"};
constexpr std::array<std::string_view, 2> kKept = {"wrong", "all"};
constexpr std::array<std::string_view, 32> kStatistics = {"max",
                                                          "min",
                                                          "mean",
                                                          "norm",
                                                          "variance",
                                                          "nan",
                                                          "inf",
                                                          "zero_share",
                                                          "rms",
                                                          "abs_max",
                                                          "range",
                                                          "kurtosis",
                                                          "underflow_bf16",
                                                          "underflow_fp16",
                                                          "underflow_e4m3",
                                                          "underflow_e5m2",
                                                          "to_zero_bf16",
                                                          "to_zero_fp16",
                                                          "to_zero_e4m3",
                                                          "to_zero_e5m2",
                                                          "to_zero_mxfp8_e4m3",
                                                          "to_zero_mxfp8_e5m2",
                                                          "to_zero_mxfp4",
                                                          "to_zero_nvfp4",
                                                          "error_bf16",
                                                          "error_fp16",
                                                          "error_e4m3",
                                                          "error_e5m2",
                                                          "error_mxfp8_e4m3",
                                                          "error_mxfp8_e5m2",
                                                          "error_mxfp4",
                                                          "error_nvfp4"};
constexpr std::array<std::string_view, 5> kModelSeries = {"attention", "experts", "weights", "tokens", "scales"};
constexpr std::array<std::string_view, 3> kGradLevels = {"L0", "L1", "L2"};
constexpr std::array<std::string_view, 6> kPolicies = {"default",    "documented", "torch",
                                                       "fp64-ratio", "acc-check",  "cann"};
constexpr std::array<std::string_view, 2> kFuzzDevices = {"npu", "cpu"};
constexpr std::array<std::string_view, 6> kPertModes = {"improve_precision", "bit_noise", "add_noise",
                                                        "change_value",      "no_change", "to_cpu"};
constexpr std::array<std::string_view, 2> kHandlers = {"check", "fix"};
constexpr std::array<std::string_view, 1> kFuzzLevels = {"L1"};
constexpr std::array<std::string_view, 2> kFuzzStages = {"forward", "backward"};
constexpr std::array<std::string_view, 3> kReuses = {"off", "parameters", "all"};

constexpr std::pair<std::string_view, std::string_view> kOtherTasks[] = {
    {"acc_check", "runs recorded API calls again after the run, which is no capture"},
    {"multi_acc_check", "runs recorded API calls again after the run, which is no capture"},
    {"run_ut", "runs recorded API calls again after the run, which is no capture"},
    {"exception_dump", "exists for MindSpore only; nan_check finds NaN and Inf here"},
    {"overflow_check", "has become nan_check, which needs no register of the device"},
};
// Sections that the files of other tasks have; they are known and not looked at.
constexpr std::array<std::string_view, 2> kOtherSections = {"acc_check", "exception_dump"};

// Values of Field.fixed.
constexpr std::string_view kSettled = "cannot be changed while the program runs";
constexpr std::string_view kSwitched = "is switched by start and stop";
constexpr std::string_view kIsSection = "is a section, whose fields are set by their own names";

constexpr FieldForm kBool = {.kind = Kind::kBool};
constexpr FieldForm kText = {.kind = Kind::kText};
constexpr FieldForm kDirectoryForm = {.kind = Kind::kText, .shown = "a directory that exists"};
constexpr FieldForm kTextList = {.kind = Kind::kTextList};
constexpr FieldForm kRanksOrSteps = {.kind = Kind::kRanksOrSteps};

constexpr FieldForm OneOf(std::span<const std::string_view> choices) {
  return {.kind = Kind::kChoice, .choices = choices};
}
constexpr FieldForm NumberOf(double low, double high, std::string_view unit) {
  return {.kind = Kind::kNumber, .low = low, .high = high, .unit = unit};
}

constexpr uint16_t In(std::initializer_list<Task> tasks) {
  uint16_t bits = 0;
  for (Task task : tasks) bits |= static_cast<uint16_t>(1 << static_cast<int>(task));
  return bits;
}

constexpr auto kFreeBenchmark = &Config::free_benchmark;
constexpr auto kSession = &Config::session;
constexpr auto kAccess = &SessionConfig::access;

constexpr Field kFields[] = {
    // The whole, as mindstudio-probe has it.
    {.name = "task",
     .form = OneOf(kTasks),
     .access = {.read = &ReadTask, .give = &GiveChoice<&Config::task>},
     .description =
         "What is captured: `statistics`, numbers of every tensor; `tensor`, its content too; `structure`, "
         "names and nesting alone; `diff_check`, checksums compared with an earlier dump; `nan_check`, which "
         "record gave NaN or Inf; `check`, some API calls with their tensors, which workers run again while the "
         "program "
         "runs ([checking](checking.md#live)); `monitor`, series of statistics of weights, gradients and optimizer "
         "([monitoring](monitoring.md#watch-a-training-run)); `grad_probe`, of the gradients of parameters the signs "
         "([monitoring](monitoring.md#gradient-signs)); `free_benchmark`, API calls run a second time, perturbed "
         "([free_benchmark](free_benchmark.md)).",
     .wrong = R"("xx")",
     .tell = [](const Config& config, CaptureSettings* settings) { settings->task = ToString(config.task); }},
    {.name = "dump_path",
     .form = {.kind = Kind::kText, .more = R"("minLength": 1)", .shown = "a directory"},
     .access = kPlain<&Config::dump_path>,
     .description = "Where the dump goes; the directory is made if it is absent.",
     .wrong = "1",
     .required = true,
     .fixed = kSettled,
     .tell = [](const Config& config, CaptureSettings* settings) { settings->dump_path = config.dump_path; }},
    {.name = "level",
     .form = OneOf(kLevels),
     .access = {.read = &ReadLevel, .give = &GiveChoice<&Config::level>},
     .description = "What a record is about: `L0`, modules; `L1`, API calls; `mix`, both; `debug`, the arguments of "
                    "`save`.",
     .wrong = R"("L9")",
     .tell = [](const Config& config, CaptureSettings* settings) { settings->level = ToString(config.level); }},
    {.name = "rank",
     .form = kRanksOrSteps,
     .access = kPlain<&Config::rank>,
     .description = "The ranks to capture; empty means all.",
     .wrong = "[-1]"},
    {.name = "step",
     .form = kRanksOrSteps,
     .access = kPlain<&Config::step>,
     .description = "The steps to capture; empty means all, and capturing ends behind the last one.",
     .wrong = R"(["1,2"])"},
    {.name = "select",
     .ours = true,
     .form = {.kind = Kind::kText, .shown = "a predicate ([selecting](#select-by-predicate))"},
     .access = {.read = &ReadSelect, .give = &GivePlain<&Config::select>},
     .description = "Only calls that this holds of, such as `Linear & under(\"*.mlp\") & depth(<=3)`; of task monitor "
                    "also only the parameters of such modules. Empty means all.",
     .wrong = R"("Linear &")"},
    {.name = "dump_enable",
     .form = kBool,
     .access = kPlain<&Config::dump_enable>,
     .description = "If present, the file is read again when it has changed, and `false` captures nothing.",
     .wrong = "1",
     .fixed = kSwitched},
    {.name = "extra_info",
     .form = kBool,
     .access = kPlain<&Config::extra_info>,
     .description = "`false` leaves out stack.json and construct.json.",
     .wrong = "1",
     .tell = [](const Config& config,
                CaptureSettings* settings) { settings->stack_and_construct = config.extra_info; }},
    {.name = "async_dump",
     .form = kBool,
     .access = kPlain<&Config::async_dump>,
     .description = "Accepted without effect, as capture is always asynchronous.",
     .wrong = R"("true")",
     .fixed = kSettled},
    {.name = "precision",
     .form = OneOf(kPrecisions),
     .access = kChoice<&Config::precision_high>,
     .description = "`high` keeps all statistics in float64, and has Mean and Norm of every dtype.",
     .wrong = R"("mid")",
     .tell = [](const Config& config, CaptureSettings* settings) { settings->high_precision = config.precision_high; }},
    {.name = "risk_level",
     .form = {.kind = Kind::kChoice,
              .choices = kRiskLevels,
              .more = R"("enum": ["CORE", "FOCUS", "ALL", "", null])",
              .shown = R"(`"CORE"`, `"FOCUS"`, `"ALL"`, `""`, null)"},
     .access = {.read = &ReadRiskLevel, .give = &GiveChoice<&Config::risk_level>},
     .description =
         "Which APIs are recorded where neither `scope` nor `list` is given: `CORE`, matrix products, "
         "convolutions, norms, attention, linear, communication and fused operators; `FOCUS`, all but views and casts; "
         "`ALL`, `\"\"` or null, every listed API.",
     .wrong = R"("low")",
     .takes_null = true},
    {.name = "custom_op_namespaces",
     .form = kTextList,
     .access = kPlain<&Config::custom_op_namespaces>,
     .description = "The namespaces of `torch.ops` whose operators are recorded as APIs.",
     .wrong = R"("a")"},

    // `load`.
    {.name = "load.path",
     .section = Section::kLoad,
     .form = kDirectoryForm,
     .access = kDirectory<&LoadConfig::path>,
     .description = "The `dump_path` of an earlier dump with task tensor, of this tool or `mindstudio-probe`.",
     .wrong = R"("/nowhere")",
     .required = true,
     .fixed = kSettled},
    {.name = "load.modules",
     .section = Section::kLoad,
     .form = {.kind = Kind::kTextList,
              .more = R"("minItems": 1, "items": {"type": "string",
                         "pattern": "^(Module|Cell)\\.[^.]+(\\..*)?\\.forward\\.[0-9]+$"})",
              .shown = "list of names like `\"Module.layers.0.Linear.forward.0\"`"},
     .access = {.read = &ReadLoadModules, .give = &GivePlain<&LoadConfig::modules>},
     .description = "The full names of the module calls whose forward inputs are replaced by the dump's.",
     .wrong = R"(["a"])",
     .required = true,
     .fixed = kSettled},
    {.name = "load.step",
     .section = Section::kLoad,
     .form = kRanksOrSteps,
     .access = kPlain<&LoadConfig::step>,
     .description = "The steps whose inputs are replaced, each by those of the same step of the earlier dump; empty "
                    "means all.",
     .wrong = R"(["x"])",
     .fixed = kSettled},
    {.name = "load.rank",
     .section = Section::kLoad,
     .form = kRanksOrSteps,
     .access = kPlain<&LoadConfig::rank>,
     .description = "The ranks whose inputs are replaced; empty means all.",
     .wrong = "[-1]",
     .fixed = kSettled},
    {.name = "load.dump_after_load",
     .section = Section::kLoad,
     .form = kBool,
     .access = kPlain<&LoadConfig::dump_after_load>,
     .description =
         "`true` captures the run with the replaced inputs; `false` captures nothing, and `dump_path` may be "
         "absent.",
     .wrong = "1",
     .fixed = kSettled},

    // The section of a task.
    {.name = "scope",
     .section = Section::kTask,
     .form = {.kind = Kind::kTextList,
              .more = R"("anyOf": [{"maxItems": 0}, {"minItems": 2, "maxItems": 2}])",
              .shown = "empty, or two full names"},
     .access = {.read = &ReadScope, .give = &GivePlain<&Config::scope>},
     .description = "The first and the last record, by full name: of modules at level L0, of APIs at L1, of either at "
                    "mix. A module twice stands for all that runs inside it.",
     .wrong = R"(["a"])",
     .at_debug = false},
    {.name = "list",
     .section = Section::kTask,
     .form = {.kind = Kind::kTextList,
              .more = R"("items": {"type": "string", "pattern": "^(?!name-regex\\()|\\)$"})",
              .shown = "list of strings or `\"name-regex(EXPRESSION)\"`"},
     .access = {.read = &ReadList, .give = &GivePlain<&Config::list>},
     .description = "Only records whose name contains one of these strings, or in whose name the regular expression "
                    "(RE2) is found; at level mix also all inside a module that is listed.",
     .wrong = R"(["name-regex(a"])",
     .at_debug = false},
    {.name = "tensor_list",
     .section = Section::kTask,
     .form = kTextList,
     .access = kPlain<&Config::tensor_list>,
     .description = "The tensors of records whose name contains one of these strings are kept beside the numbers.",
     .wrong = "3",
     .tasks = In({Task::kStatistics, Task::kNanCheck}),
     .at_debug = false},
    {.name = "data_mode",
     .section = Section::kTask,
     .form = {.kind = Kind::kTextList,
              .more = R"("anyOf": [{"items": {"const": "all"}, "maxItems": 1},
                         {"items": {"enum": ["input", "output", "forward", "backward"]}, "maxItems": 4}])",
              .shown = "`[\"all\"]`, or some of `\"input\"`, `\"output\"`, `\"forward\"`, `\"backward\"`"},
     .access = {.read = &ReadDataMode, .give = &GiveDataMode},
     .description = "Which sides and directions of a record are captured; naming neither of a pair leaves both.",
     .wrong = R"(["x"])"},
    {.name = "summary_mode",
     .section = Section::kTask,
     .form = OneOf(kSummaryModes),
     .access = {.read = &ReadSummaryMode, .give = &GiveChoice<&Config::summary_mode>},
     .description = "`md5` adds a CRC-32 of the bytes to the numbers; `xor` puts the XOR of the 64-bit words in their "
                    "place.",
     .wrong = R"("crc")",
     .tasks = In({Task::kStatistics, Task::kTensor, Task::kDiffCheck}),
     .tell = [](const Config& config,
                CaptureSettings* settings) { settings->summary_mode = ToString(config.summary_mode); }},
    {.name = "slice",
     .section = Section::kTask,
     .form = {.kind = Kind::kObjectList,
              .more = R"("items": {"type": "object", "additionalProperties": false, "properties": {
                         "dim": {"type": ["integer", "null"], "minimum": 0},
                         "size": {"type": ["integer", "null"], "minimum": 0},
                         "begin": {"type": ["integer", "null"]}, "end": {"type": ["integer", "null"]}}})",
              .shown = "list of `{\"dim\": 0, \"size\": N, \"begin\": 0, \"end\": N}`"},
     .access = {.read = &ReadSlice, .give = &GivePlain<&Config::slice>},
     .description = "The part of each tensor that is read: `[begin:end]` of dimension `dim`, as Python slices; with "
                    "`size`, only of tensors whose dimension has that size.",
     .wrong = R"([{"dim": -1}])",
     .tasks = In({Task::kStatistics, Task::kTensor}),
     .at_debug = false},
    {.name = "request_id",
     .section = Section::kTask,
     .form = kText,
     .access = kPlain<&Config::request_id>,
     .description =
         "With `start(scheduled_tokens=)`: of tensors whose first dimension is the whole batch, only the rows "
         "of this request are read, and steps without it are skipped.",
     .wrong = "3",
     .tasks = In({Task::kStatistics, Task::kTensor}),
     .at_debug = false},
    {.name = "bench_path",
     .section = Section::kTask,
     .form = kDirectoryForm,
     .access = kDirectory<&Config::bench_path>,
     .description = "The `dump_path` of an earlier dump with `summary_mode` md5; task diff_check needs it.",
     .wrong = R"("/nowhere")",
     .tasks = In({Task::kTensor, Task::kDiffCheck}),
     .checked_without_effect = false},
    {.name = "diff_nums",
     .section = Section::kTask,
     .form = {.kind = Kind::kWholeNumber,
              .unit = "records",
              .more = R"("minimum": -1, "not": {"const": 0})",
              .shown = "-1, or 1 and more"},
     .access = {.read = &ReadDiffNums,
                .give = [](const Config& config, const Field&) { return FieldValue(config.diff_nums); }},
     .description = "So many records that differ from `bench_path` keep their tensors, then comparing ends with the "
                    "step; -1 means for ever.",
     .wrong = "0",
     .tasks = In({Task::kTensor, Task::kDiffCheck}),
     .checked_without_effect = false},

    {.name = "sample",
     .section = Section::kTask,
     .ours = true,
     .form = OneOf(kSamples),
     .access = kChoice<&Config::check, &CheckConfig::sample>,
     .description =
         "Which calls are captured: `first`, those whose operator had none of these dtypes and shapes before; "
         "`turns`, these first, then the others, where the step before ran out of its budget; `identity`, those that "
         "their step, name and number choose, which are the same in every run of the program.",
     .wrong = R"("some")",
     .tasks = In({Task::kCheck}),
     .at_debug = false},
    {.name = "budget_mb",
     .section = Section::kTask,
     .ours = true,
     .form = NumberOf(0, 1 << 20, "MiB"),
     .access = kMebibytes<&Config::check, &CheckConfig::budget_bytes>,
     .description = "So much of tensors is captured a step, at most.",
     .wrong = "-1",
     .tasks = In({Task::kCheck}),
     .at_debug = false},
    {.name = "budget_ms",
     .section = Section::kTask,
     .ours = true,
     .form = NumberOf(0, 3'600'000, "milliseconds"),
     .access = kMilliseconds<&Config::check, &CheckConfig::budget_time>,
     .description =
         "So long a step the program's threads capture calls, and the agent's send them, on average; 0 means 2 % of "
         "the step before, and with sample identity no limit.",
     .wrong = "-1",
     .tasks = In({Task::kCheck}),
     .at_debug = false},
    {.name = "golden",
     .section = Section::kTask,
     .ours = true,
     .form = {.kind = Kind::kText, .more = R"("minLength": 1)", .shown = "`cpu-fp64`, `cpu-raised`, `none` or a run"},
     .access = {.read = &ReadGolden, .give = &GivePlain<&Config::check, &CheckConfig::golden>},
     .description = "What a call is held against: float64 on a worker's CPU, the next wider dtype, or the outputs that "
                    "another run saved of the calls of the same step, rank and name. `none`: nothing is checked, and "
                    "another run is held against this one.",
     .wrong = "3",
     .tasks = In({Task::kCheck}),
     .at_debug = false},
    {.name = "golden_wait_s",
     .section = Section::kTask,
     .ours = true,
     .form = NumberOf(1, 86'400, "seconds"),
     .access = kSeconds<&Config::check, &CheckConfig::golden_wait>,
     .description = "So long a call waits for that of the other run, and with golden `none` for the run that is held "
                    "against this one.",
     .wrong = "0",
     .tasks = In({Task::kCheck}),
     .at_debug = false},
    {.name = "keep",
     .section = Section::kTask,
     .ours = true,
     .form = OneOf(kKept),
     .access = kChoice<&Config::check, &CheckConfig::keep>,
     .description = "Whose tensors the server keeps once they are checked: `wrong`, those of calls that did not pass; "
                    "`all`, those of every call.",
     .wrong = R"("none")",
     .tasks = In({Task::kCheck}),
     .at_debug = false},
    {.name = "policy",
     .section = Section::kTask,
     .ours = true,
     .form = OneOf(kPolicies),
     .access = {.read = &ReadPolicy, .give = &GivePlain<&Config::check, &CheckConfig::policy>},
     .description = "What is right ([checking](checking.md#policies)).",
     .wrong = R"("strict")",
     .tasks = In({Task::kCheck}),
     .at_debug = false},

    {.name = "weight_grad",
     .section = Section::kTask,
     .ours = true,
     .form = kBool,
     .access = kPlain<&Config::monitor, &MonitorConfig::weight_grad>,
     .description = "Whether the weights' gradients become series.",
     .wrong = "1",
     .tasks = In({Task::kMonitor}),
     .at_debug = false},
    {.name = "micro_batches",
     .section = Section::kTask,
     .ours = true,
     .form = kBool,
     .access = kPlain<&Config::monitor, &MonitorConfig::micro_batches>,
     .description = "Whether also each micro-batch's, as it leaves them.",
     .wrong = "1",
     .tasks = In({Task::kMonitor}),
     .at_debug = false},
    {.name = "moments",
     .section = Section::kTask,
     .ours = true,
     .form = kBool,
     .access = kPlain<&Config::monitor, &MonitorConfig::moments>,
     .description = "Whether the optimizer's state does: every tensor in it but `step`.",
     .wrong = "1",
     .tasks = In({Task::kMonitor}),
     .at_debug = false},
    {.name = "parameters",
     .section = Section::kTask,
     .ours = true,
     .form = kBool,
     .access = kPlain<&Config::monitor, &MonitorConfig::parameters>,
     .description = "Whether the parameters do, as the optimizer leaves them.",
     .wrong = "1",
     .tasks = In({Task::kMonitor}),
     .at_debug = false},
    {.name = "update_ratio",
     .section = Section::kTask,
     .ours = true,
     .form = kBool,
     .access = kPlain<&Config::monitor, &MonitorConfig::update_ratio>,
     .description = "Whether the norm of each parameter's change does, as a share of the norm of the parameter.",
     .wrong = "1",
     .tasks = In({Task::kMonitor}),
     .at_debug = false},
    {.name = "communication",
     .section = Section::kTask,
     .ours = true,
     .form = kBool,
     .access = kPlain<&Config::monitor, &MonitorConfig::communication>,
     .description = "Whether calls of `torch.distributed` do, by the line that makes them.",
     .wrong = "1",
     .tasks = In({Task::kMonitor}),
     .at_debug = false},
    {.name = "interval",
     .section = Section::kTask,
     .ours = true,
     .form = {.kind = Kind::kWholeNumber, .unit = "steps", .more = R"("minimum": 1)", .shown = "1 or more steps"},
     .access = kCount<&Config::monitor, &MonitorConfig::interval>,
     .description = "Every so many steps all of this is read.",
     .wrong = "0",
     .tasks = In({Task::kMonitor}),
     .at_debug = false},
    {.name = "activations",
     .section = Section::kTask,
     .ours = true,
     .form = {.kind = Kind::kWholeNumber, .unit = "steps"},
     .access = kPlain<&Config::monitor, &MonitorConfig::activations>,
     .description = "Every so many steps the modules are captured, with inputs, outputs and their gradients; 0 means "
                    "never.",
     .wrong = "-1",
     .tasks = In({Task::kMonitor}),
     .at_debug = false},
    {.name = "ops",
     .section = Section::kTask,
     .ours = true,
     .form = {.kind = Kind::kTextList,
              .choices = kStatistics,
              .shown = "list of statistics ([monitoring](monitoring.md#watch-a-training-run))"},
     .access = {.read = &ReadOps, .give = &GivePlain<&Config::monitor, &MonitorConfig::ops>},
     .description = "The statistics of each tensor, a series each; empty means min, max, mean, norm and nan.",
     .wrong = R"(["median"])",
     .tasks = In({Task::kMonitor}),
     .at_debug = false},
    {.name = "model_series",
     .section = Section::kTask,
     .ours = true,
     .form = {.kind = Kind::kTextList,
              .choices = kModelSeries,
              .shown = "list of `\"attention\"`, `\"experts\"`, `\"weights\"`, `\"tokens\"`, `\"scales\"`"},
     .access = {.read = &ReadModelSeries, .give = &GivePlain<&Config::monitor, &MonitorConfig::model_series>},
     .description = "Series that only some models have ([monitoring](monitoring.md#what-only-some-models-have)).",
     .wrong = R"(["heads"])",
     .fixed = kSettled,
     .tasks = In({Task::kMonitor}),
     .at_debug = false},
    {.name = "routers",
     .section = Section::kTask,
     .ours = true,
     .form = {.kind = Kind::kText, .shown = "a predicate ([selecting](#select-by-predicate))"},
     .access = {.read = &ReadRouters, .give = &GivePlain<&Config::monitor, &MonitorConfig::routers>},
     .description = "The modules that give the logits of a router, for `experts` in `model_series`.",
     .wrong = R"("Linear &")",
     .fixed = kSettled,
     .tasks = In({Task::kMonitor}),
     .at_debug = false},
    {.name = "grad_level",
     .section = Section::kTask,
     .form = OneOf(kGradLevels),
     .access = kChoice<&Config::grad_probe, &GradProbeConfig::level>,
     .description = "What is kept of each gradient beside max, min, norm and shape: `L0`, a CRC-32 of its elements as "
                    "float32; `L1`, the sign of each element; `L2`, the signs, and how many elements lie between "
                    "`bounds`.",
     .wrong = R"("L3")",
     .tasks = In({Task::kGradProbe})},
    {.name = "param_list",
     .section = Section::kTask,
     .form = kTextList,
     .access = kPlain<&Config::grad_probe, &GradProbeConfig::parameters>,
     .description = "The parameters that are watched, by their whole names; empty means all.",
     .wrong = R"("weight")",
     .tasks = In({Task::kGradProbe})},
    {.name = "bounds",
     .section = Section::kTask,
     .form = {.kind = Kind::kNumberList, .shown = "list of numbers that grow"},
     .access = {.read = &ReadBounds,
                .give = [](const Config& config, const Field&) { return FieldValue(config.grad_probe.bounds); }},
     .description = "Where the intervals of `L2` end.",
     .wrong = "[\"a\"]",
     .tasks = In({Task::kGradProbe})},
    {.name = "fuzz_device",
     .section = Section::kTask,
     .form = OneOf(kFuzzDevices),
     .access = kChoice<kFreeBenchmark, &FreeBenchmarkConfig::device>,
     .description = "Where a call runs the second time: `npu`, where its tensors are, on whatever device; `cpu`, with "
                    "`to_cpu` and only there.",
     .wrong = R"("tpu")",
     .tasks = In({Task::kFreeBenchmark})},
    {.name = "pert_mode",
     .section = Section::kTask,
     .form = OneOf(kPertModes),
     .access = kChoice<kFreeBenchmark, &FreeBenchmarkConfig::mode>,
     .description = "What is different the second time ([free_benchmark](free_benchmark.md#modes)).",
     .wrong = R"("noise")",
     .tasks = In({Task::kFreeBenchmark})},
    {.name = "handler_type",
     .section = Section::kTask,
     .form = OneOf(kHandlers),
     .access = kChoice<kFreeBenchmark, &FreeBenchmarkConfig::handler>,
     .description = "`check` writes a row where the two results differ too much; `fix` gives the program the second "
                    "one, with `improve_precision` or `to_cpu` and stage forward.",
     .wrong = R"("report")",
     .tasks = In({Task::kFreeBenchmark})},
    {.name = "fuzz_level",
     .section = Section::kTask,
     .form = OneOf(kFuzzLevels),
     .access = kChoice<kFreeBenchmark, &FreeBenchmarkConfig::level>,
     .description = "API calls, as they come.",
     .wrong = R"("L2")",
     .tasks = In({Task::kFreeBenchmark})},
    {.name = "fuzz_stage",
     .section = Section::kTask,
     .form = OneOf(kFuzzStages),
     .access = kChoice<kFreeBenchmark, &FreeBenchmarkConfig::stage>,
     .description = "`forward` perturbs the inputs of a call; `backward`, which needs `list`, the gradients that come "
                    "to its outputs.",
     .wrong = R"("both")",
     .tasks = In({Task::kFreeBenchmark})},
    {.name = "if_preheat",
     .section = Section::kTask,
     .form = kBool,
     .access = kPlain<kFreeBenchmark, &FreeBenchmarkConfig::preheat>,
     .description = "`true` lets each API find its own limit in the first steps "
                    "([free_benchmark](free_benchmark.md#preheat)); not with handler fix.",
     .wrong = "1",
     .tasks = In({Task::kFreeBenchmark})},
    {.name = "preheat_step",
     .section = Section::kTask,
     .form = {.kind = Kind::kWholeNumber, .unit = "steps", .more = R"("minimum": 1)", .shown = "1 or more steps"},
     .access = kCount<kFreeBenchmark, &FreeBenchmarkConfig::preheat_steps>,
     .description = "So many steps it takes.",
     .wrong = "0",
     .tasks = In({Task::kFreeBenchmark})},
    {.name = "max_sample",
     .section = Section::kTask,
     .form = {.kind = Kind::kWholeNumber, .unit = "calls", .more = R"("minimum": 1)", .shown = "1 or more calls"},
     .access = kCount<kFreeBenchmark, &FreeBenchmarkConfig::max_sample>,
     .description = "So many calls of an API also run on the CPU in each of these steps, at most.",
     .wrong = "0",
     .tasks = In({Task::kFreeBenchmark})},

    // The whole, ours.
    {.name = "server",
     .ours = true,
     .form = {.kind = Kind::kText,
              .more = R"("pattern": "^$|^( *(unix:/[^,]+|(\\[[^\\],]+\\]|[A-Za-z0-9._-]+):[0-9]{1,5}) *(,(?=.)|$))+$")",
              .shown = "`host:port` or `unix:/path`, or several with commas between"},
     .access = {.read = &ReadServer, .give = &GivePlain<kSession, &SessionConfig::server>},
     .description = "The msprobe-server that records go to, or several of one cluster; empty means that one is started "
                    "for `dump_path` and leaves by itself.",
     .wrong = R"("nowhere")",
     .fixed = kSettled,
     .environment = "MSPROBE_SERVER"},
    {.name = "server_ca",
     .ours = true,
     .form = {.kind = Kind::kText, .shown = "a PEM file, or `system`"},
     .access = kPlain<kSession, kAccess, &ServerAccess::ca>,
     .description =
         "The authority of the server's certificate, which makes the connection TLS; `system` means the roots "
         "of this machine.",
     .wrong = "3",
     .fixed = kSettled,
     .environment = "MSPROBE_SERVER_CA"},
    {.name = "server_cert",
     .ours = true,
     .form = {.kind = Kind::kText, .shown = "a PEM file"},
     .access = kPlain<kSession, kAccess, &ServerAccess::cert>,
     .description = "This program's certificate, where the server wants one; needs `server_ca` and `server_key`.",
     .wrong = "3",
     .fixed = kSettled,
     .environment = "MSPROBE_SERVER_CERT"},
    {.name = "server_key",
     .ours = true,
     .form = {.kind = Kind::kText, .shown = "a PEM file"},
     .access = kPlain<kSession, kAccess, &ServerAccess::key>,
     .description = "The private key of `server_cert`.",
     .wrong = "3",
     .fixed = kSettled,
     .environment = "MSPROBE_SERVER_KEY"},
    {.name = "server_token_file",
     .ours = true,
     .form = {.kind = Kind::kText, .shown = "a file"},
     .access = kPlain<kSession, kAccess, &ServerAccess::token_file>,
     .description = "The file whose first word is the token of role `write`, where the server wants one.",
     .wrong = "3",
     .fixed = kSettled,
     .environment = "MSPROBE_SERVER_TOKEN_FILE"},
    {.name = "run",
     .ours = true,
     .form = kText,
     .access = {.read = &ReadRun, .give = &GivePlain<&Config::run>},
     .description =
         "The name of the run, which its ranks share; empty means that the launcher's variables give it, else "
         "program and time.",
     .wrong = "3",
     .fixed = kSettled,
     .environment = "MSPROBE_RUN"},
    {.name = "loss_policy",
     .ours = true,
     .form = OneOf(kLossPolicies),
     .access = kChoice<kSession, &SessionConfig::loss_policy>,
     .description = "What happens when memory is full because the server is slow or gone: `spool` writes to disk, then "
                    "stalls; `stall` waits, then drops; `drop` leaves records out and counts them.",
     .wrong = R"("lose")",
     .fixed = kSettled},
    {.name = "memory_ceiling_mb",
     .ours = true,
     .form = NumberOf(1, 1 << 20, "MiB"),
     .access = kMebibytes<kSession, &SessionConfig::memory_ceiling_bytes>,
     .description = "The memory that the agent holds at most.",
     .wrong = "0",
     .fixed = kSettled},
    {.name = "spool_quota_mb",
     .ours = true,
     .form = NumberOf(0, 1 << 24, "MiB"),
     .access = kMebibytes<kSession, &SessionConfig::spool_quota_bytes>,
     .description = "The disk that `spool` uses at most.",
     .wrong = "-1",
     .fixed = kSettled},
    {.name = "stall_bound_s",
     .ours = true,
     .form = NumberOf(0, 86400, "seconds"),
     .access = kSeconds<kSession, &SessionConfig::stall_bound>,
     .description = "How long a shortage stalls a step in all before records are dropped.",
     .wrong = R"("1")",
     .fixed = kSettled},
    {.name = "schedule",
     .ours = true,
     .form = {.kind = Kind::kObject,
              .more = R"("additionalProperties": false, "required": ["active"], "properties": {
                         "wait": {"type": "integer", "minimum": 0, "maximum": 1000000},
                         "warmup": {"type": "integer", "minimum": 0, "maximum": 1000000},
                         "active": {"type": "integer", "minimum": 1, "maximum": 1000000},
                         "repeat": {"type": "integer", "minimum": 0, "maximum": 1000000},
                         "skip_first": {"type": "integer", "minimum": 0, "maximum": 1000000}})",
              .shown = "`{\"wait\": 10, \"warmup\": 0, \"active\": 2, \"repeat\": 3, \"skip_first\": 0}`"},
     .access = {.read = &ReadSchedule, .give = &GivePlain<&Config::schedule>},
     .description =
         "Which steps are captured, in turns, as `torch.profiler.schedule` has it: behind `skip_first` steps "
         "each turn leaves out `wait` and `warmup` steps and captures `active` ones, `repeat` times or, with "
         "0, without end. Steps are counted from the program's first.",
     .wrong = R"({"active": 0})"},
    {.name = "max_steps",
     .ours = true,
     .form = {.kind = Kind::kWholeNumber, .unit = "steps"},
     .access = kPlain<&Config::max_steps>,
     .description = "So many steps are captured, then capturing ends and the program goes on; 0 means no end.",
     .wrong = "-1",
     .fixed = kSettled},
    {.name = "dump_quota_mb",
     .ours = true,
     .form = {.kind = Kind::kNumber,
              .high = 1 << 30,
              .unit = "MiB",
              .more = R"("anyOf": [{"const": 0}, {"minimum": 64}, {"type": "null"}])",
              .shown = "0, or 64 to 1073741824 MiB"},
     .access = {.read = &ReadDumpQuota, .give = kMebibytes<kSession, &SessionConfig::dump_quota_bytes>.give},
     .description =
         "The disk that a dump without a named server takes at most; 0 means half of the space that was free "
         "at first, and never the last tenth of the disk.",
     .wrong = "-1",
     .fixed = kSettled},
    {.name = "session_memory",
     .ours = true,
     .form = {.kind = Kind::kText,
              .more = R"("pattern": "^$|^off$|^/")",
              .shown = "the absolute path of a directory, `off` or empty"},
     .access = {.read = &ReadSessionMemory, .give = &GivePlain<kSession, &SessionConfig::session_memory>},
     .description =
         "Where the file lies that outlives a killed process, with all records that no server has yet; empty "
         "means `/dev/shm`, or beside the spool in a container; `off` means no such file.",
     .wrong = R"("here")",
     .fixed = kSettled},
    {.name = "shared_memory",
     .ours = true,
     .form = kBool,
     .access = kPlain<kSession, &SessionConfig::shared_memory>,
     .description = "With tasks tensor and check, a server of the same machine and user reads tensors from the "
                    "session's memory; `false` sends them through the connection.",
     .wrong = R"("yes")",
     .fixed = kSettled},
    {.name = "capture",
     .ours = true,
     .form = OneOf(kCaptures),
     .access = kChoice<&Config::capture_all>,
     .description = "`all` also records `x[i]`, `torch.ops`, more of `torch.distributed` and the root module, which "
                    "`mindstudio-probe` does not.",
     .wrong = R"("some")"},
    {.name = "backward",
     .ours = true,
     .form = OneOf(kBackwards),
     .access = kChoice<&Config::exact_backward>,
     .description =
         "How the gradients of a module are found: `observed` reads them in the graph as it is; `exact` puts "
         "autograd nodes around each module.",
     .wrong = R"("full")"},
    {.name = "edges",
     .ours = true,
     .form = OneOf(kSwitch),
     .access = kChoice<&Config::edges>,
     .description = "`on` tells of each input which record made it, by the tensor's memory and version "
                    "([edges.md](edges.md)); `off` does not look.",
     .wrong = R"("yes")"},
    {.name = "linear_weight_grad",
     .ours = true,
     .form = kBool,
     .access = kPlain<&Config::linear_weight_grad>,
     .description = "`true` adds the gradient of the weight, as `weight_grad`, to the backward record of a "
                    "`Functional.linear`.",
     .wrong = "1"},
    {.name = "reuse",
     .ours = true,
     .form = OneOf(kReuses),
     .access = kChoice<&Config::reuse>,
     .description =
         "Which tensors need not be read again: `off`, none; `parameters`, those of host memory that outlive "
         "a step, while the kernel says that nobody wrote them; `all` is taken as `parameters`.",
     .wrong = R"("some")"},
    {.name = "reading_threads",
     .ours = true,
     .form = {.kind = Kind::kWholeNumber, .unit = "threads"},
     .access = kPlain<&Config::reading_threads>,
     .description =
         "So many threads at most read a large tensor together with the program's own, while the machine has "
         "idle cores; 0 means none, and that no parameter is read before its call.",
     .wrong = "-1",
     .fixed = kSettled},
    {.name = "$schema",
     .ours = true,
     .form = kText,
     .access = {.read = &ReadUnused},
     .description = "Where an editor finds the JSON schema of this file; it has no other effect.",
     .wrong = "3",
     .fixed = kSettled},
};

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const Field* Find(std::string_view name) {
  const auto* const found =
      std::find_if(std::begin(kFields), std::end(kFields), [&](const Field& field) { return field.name == name; });
  return found == std::end(kFields) ? nullptr : found;
}

// The keys of the fields that can be changed while the program runs.
std::vector<std::string_view> LiveNames(Section section) {
  std::vector<std::string_view> names;
  for (const Field* field : FieldsOf(section)) {
    if (field->fixed.empty()) names.push_back(field->key());
  }
  return names;
}

}  // namespace

std::span<const Field> Fields() { return kFields; }

std::vector<const Field*> FieldsOf(Section section) {
  std::vector<const Field*> fields;
  for (const Field& field : kFields) {
    if (field.section == section) fields.push_back(&field);
  }
  return fields;
}

std::vector<std::string_view> NamesOf(Section section) {
  std::vector<std::string_view> names;
  for (const Field* field : FieldsOf(section)) names.push_back(field->key());
  if (section == Section::kTop) {
    names.emplace_back("load");
    names.insert(names.end(), kTasks.begin(), kTasks.end());
    names.insert(names.end(), kOtherSections.begin(), kOtherSections.end());
  }
  return names;
}

std::vector<std::string> ConfigFields() {
  std::vector<std::string> fields;
  for (const Field& field : kFields) fields.push_back(Cat(field.section == Section::kTask ? "*." : "", field.name));
  return fields;
}

std::string WhyFixed(std::string_view name) {
  if (const Field* const field = Find(name); field != nullptr && field->section != Section::kLoad) {
    return field->fixed.empty() ? std::string() : Cat(name, " ", field->fixed);
  }
  if (name == "load") return Cat(name, " ", kSettled);
  if (Contains(kTasks, name) || Contains(kOtherSections, name)) return Cat(name, " ", kIsSection);
  std::string_view nearest = Nearest(name, LiveNames(Section::kTop));
  if (nearest.empty()) nearest = Nearest(name, LiveNames(Section::kTask));
  return Cat("\"", name, "\" is no field of the configuration",
             nearest.empty() ? std::string() : Cat("; did you mean \"", nearest, "\"?"));
}

std::span<const std::string_view> TaskNames() { return kTasks; }

std::string_view OtherTask(std::string_view task) {
  for (const auto& [name, what] : kOtherTasks) {
    if (name == task) return what;
  }
  return {};
}

std::string_view ToString(Task task) { return kTasks[static_cast<size_t>(task)]; }
std::string_view ToString(Level level) { return kLevels[static_cast<size_t>(level)]; }
std::string_view ToString(SummaryMode mode) { return kSummaryModes[static_cast<size_t>(mode)]; }
std::string_view ToString(LossPolicy policy) { return kLossPolicies[static_cast<size_t>(policy)]; }

}  // namespace msprobe::core
