#include "agent/core/config/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <set>
#include <utility>

#include "agent/core/config/config_field.h"
#include "agent/core/config/config_table.h"
#include "agent/core/config/dump_path.h"
#include "agent/core/config/name_pattern.h"
#include "agent/core/config/server_access.h"
#include "agent/core/config/server_address.h"
#include "agent/core/str_cat.h"
#include "rapidjson/error/en.h"

namespace msprobe::core {
namespace {

using rapidjson::Value;

constexpr std::array<std::string_view, 5> kTasks = {"statistics", "tensor", "structure", "diff_check", "nan_check"};
constexpr std::array<std::string_view, 4> kLevels = {"L0", "L1", "mix", "debug"};
constexpr std::array<std::string_view, 3> kSummaryModes = {"statistics", "md5", "xor"};
constexpr std::array<std::string_view, 3> kRiskLevels = {"CORE", "FOCUS", "ALL"};
constexpr std::array<std::string_view, 2> kPrecisions = {"low", "high"};
constexpr std::array<std::string_view, 3> kLossPolicies = {"spool", "stall", "drop"};
constexpr std::array<std::string_view, 2> kCaptures = {"listed", "all"};
constexpr std::array<std::string_view, 2> kBackwards = {"observed", "exact"};
constexpr std::array<std::string_view, 3> kReuses = {"off", "parameters", "all"};

constexpr int kLeastDumpQuota = 64;  // MiB

// A member that is absent or null is null.
const Value* Find(const Value& object, const char* name) {
  if (!object.IsObject()) return nullptr;
  const auto member = object.FindMember(name);
  return member == object.MemberEnd() || member->value.IsNull() ? nullptr : &member->value;
}

absl::Status Contradiction(std::string_view one, std::string_view other, std::string_view rule) {
  return absl::InvalidArgumentError(Cat(one, " contradicts ", other, ": ", rule));
}

// Warns of members that are not `known`, and refuses one that is given twice. Those of `section_fields` have their
// place in `section`.
absl::Status CheckNames(const Value& object, std::string_view where, std::span<const std::string_view> known,
                        std::vector<std::string>* warnings, std::span<const std::string_view> section_fields = {},
                        std::string_view section = {}) {
  std::set<std::string_view> seen;
  for (const auto& member : object.GetObject()) {
    const std::string_view name(member.name.GetString(), member.name.GetStringLength());
    if (!seen.insert(name).second) {
      return absl::InvalidArgumentError(
          Cat("field \"", name, "\" is given twice ", where, ", it should stand there once."));
    }
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (std::find(section_fields.begin(), section_fields.end(), name) != section_fields.end()) {
      warnings->push_back(
          Cat("field \"", name, "\" ", where, " has no effect; it belongs into section \"", section, "\""));
      continue;
    }
    const std::string_view nearest = Nearest(name, known);
    warnings->push_back(Cat("unknown field \"", name, "\" ", where, " has no effect",
                            nearest.empty() ? "" : Cat("; did you mean \"", nearest, "\"?")));
  }
  return absl::OkStatus();
}

absl::Status ReadExistingDirectory(const Value* value, std::string_view field, std::string* out) {
  if (absl::Status status = ReadString(value, field, out); !status.ok() || value == nullptr) return status;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(*out, error).lexically_normal();
  if (error || !std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        Cat(field, " is invalid, it should be a directory that exists, currently it is ", Shown(*value), "."));
  }
  *out = path.string();
  return absl::OkStatus();
}

// Reads the fields of a configuration one group after another; the first error stays.
class Reader {
 public:
  Reader(const Value& root, const ConfigOverrides& overrides) : root_(root), overrides_(overrides) {}

  absl::StatusOr<Config> Read() {
    for (const auto step : {&Reader::ReadTask, &Reader::ReadLevel, &Reader::ReadCommon, &Reader::ReadTaskSection,
                            &Reader::ReadOwn, &Reader::ReadDumpPath}) {
      if (absl::Status status = (this->*step)(); !status.ok()) return status;
    }
    return std::move(config_);
  }

 private:
  absl::Status ReadTask() {
    const Value* value = Find(root_, "task");
    Value given;
    if (overrides_.task.has_value()) {
      given.SetString(overrides_.task->data(), static_cast<rapidjson::SizeType>(overrides_.task->size()));
      value = &given;
    }
    if (value != nullptr && value->IsString() && !OtherTask(value->GetString()).empty()) {
      return absl::InvalidArgumentError(Cat("task \"", value->GetString(), "\" is not supported, as it ",
                                            OtherTask(value->GetString()), "; it should be one of ", ShownList(kTasks),
                                            "."));
    }
    size_t index = 0;
    absl::Status status = ReadChoice(value, "task", kTasks, &index);
    config_.task = static_cast<Task>(index);
    return status;
  }

  absl::Status ReadLevel() {
    const Value* value = Find(root_, "level");
    Value given;
    if (overrides_.level.has_value()) {
      given.SetString(overrides_.level->data(), static_cast<rapidjson::SizeType>(overrides_.level->size()));
      value = &given;
    }
    if (value != nullptr && value->IsString() && value->GetString() == std::string_view("L2")) {
      return absl::InvalidArgumentError(
          Cat("level \"L2\" is not supported, as it makes the driver of an NPU dump its kernels; it should be one of ",
              ShownList(kLevels), ". L1 with the name of one API in list records the call that runs the kernel."));
    }
    size_t index = static_cast<size_t>(Level::kL1);
    if (absl::Status status = ReadChoice(value, "level", kLevels, &index); !status.ok()) return status;
    config_.level = static_cast<Level>(index);
    if (config_.task == Task::kStructure && config_.level != Level::kL0 && config_.level != Level::kMix) {
      config_.warnings.push_back(
          Cat("task structure needs level L0 or mix; level ", ToString(config_.level), " is taken as mix"));
      config_.level = Level::kMix;
    }
    return absl::OkStatus();
  }

  absl::Status ReadCommon() {
    if (absl::Status status = CheckNames(root_, "in the configuration", TopFields(), &config_.warnings, AllTaskFields(),
                                         ToString(config_.task));
        !status.ok()) {
      return status;
    }
    if (absl::Status status = ReadRankOrStep(Find(root_, "rank"), "rank", &config_.rank); !status.ok()) return status;
    if (overrides_.step.has_value()) {
      for (const std::string& text : *overrides_.step) {
        if (absl::Status status = AddRankOrStep(text, "step", &config_.step); !status.ok()) return status;
      }
      SortUnique(&config_.step);
    } else if (absl::Status status = ReadRankOrStep(Find(root_, "step"), "step", &config_.step); !status.ok()) {
      return status;
    }
    if (const Value* const value = Find(root_, "dump_enable"); value != nullptr) {
      config_.dump_enable = true;
      if (absl::Status status = ReadBool(value, "dump_enable", &*config_.dump_enable); !status.ok()) return status;
    }
    if (absl::Status status = ReadBool(Find(root_, "extra_info"), "extra_info", &config_.extra_info); !status.ok()) {
      return status;
    }
    if (absl::Status status = ReadBool(Find(root_, "async_dump"), "async_dump", &async_dump_); !status.ok()) {
      return status;
    }
    size_t precision = 0;
    if (absl::Status status = ReadChoice(Find(root_, "precision"), "precision", kPrecisions, &precision);
        !status.ok()) {
      return status;
    }
    config_.precision_high = precision == 1;
    if (const Value* const value = Find(root_, "custom_op_namespaces"); value != nullptr) {
      config_.custom_op_namespaces.clear();
      if (absl::Status status = ReadStringList(value, "custom_op_namespaces", &config_.custom_op_namespaces);
          !status.ok()) {
        return status;
      }
    }
    if (absl::Status status = ReadLoad(); !status.ok()) return status;
    return ReadRiskLevel();
  }

  absl::Status ReadRiskLevel() {
    const auto member = root_.FindMember("risk_level");
    if (member == root_.MemberEnd()) return absl::OkStatus();
    size_t index = static_cast<size_t>(RiskLevel::kAll);
    const bool none = member->value.IsNull() || (member->value.IsString() && member->value.GetStringLength() == 0);
    absl::Status status = ReadChoice(none ? nullptr : &member->value, "risk_level", kRiskLevels, &index);
    config_.risk_level = static_cast<RiskLevel>(index);
    return status;
  }

  absl::Status ReadLoad() {
    const auto member = root_.FindMember("load");
    if (member == root_.MemberEnd() || member->value.IsNull()) return absl::OkStatus();
    const Value& section = member->value;
    if (!section.IsObject()) {
      return absl::InvalidArgumentError(
          Cat("load is invalid, it should be a dict, currently it is ", Shown(section), "."));
    }
    LoadConfig load;
    for (absl::Status status :
         {CheckNames(section, "in section \"load\"", LoadFields(), &config_.warnings),
          ReadStringList(Find(section, "modules"), "load.modules", &load.modules), CheckLoadModules(load.modules),
          ReadExistingDirectory(Find(section, "path"), "load.path", &load.path),
          ReadRankOrStep(Find(section, "step"), "load.step", &load.step),
          ReadRankOrStep(Find(section, "rank"), "load.rank", &load.rank),
          ReadBool(Find(section, "dump_after_load"), "load.dump_after_load", &load.dump_after_load)}) {
      if (!status.ok()) return status;
    }
    if (load.path.empty()) {
      return absl::InvalidArgumentError("load.path is required, it should be the dump_path of an earlier dump.");
    }
    config_.load = std::move(load);
    return absl::OkStatus();
  }

  absl::Status ReadTaskSection() {
    const std::string name(ToString(config_.task));
    const Value* const section = Find(root_, name.c_str());
    if (section != nullptr && !section->IsObject()) {
      return absl::InvalidArgumentError(
          Cat(name, " is invalid, it should be a dict, currently it is ", Shown(*section), "."));
    }
    const Value empty(rapidjson::kObjectType);
    const Value& fields = section == nullptr ? empty : *section;
    for (absl::Status status :
         {CheckNames(fields, Cat("in section \"", name, "\""), AllTaskFields(), &config_.warnings),
          ReadScope(Find(fields, "scope"), config_.level, &config_.scope),
          ReadStringList(Find(fields, "list"), "list", &config_.list), CheckPatterns(config_.list),
          ReadStringList(Find(fields, "tensor_list"), "tensor_list", &config_.tensor_list),
          ReadDataMode(Find(fields, "data_mode"), &config_), ReadSlice(Find(fields, "slice"), &config_.slice),
          ReadString(Find(fields, "request_id"), "request_id", &config_.request_id),
          ReadSummaryMode(Find(fields, "summary_mode")), ReadBench(fields)}) {
      if (!status.ok()) return status;
    }
    WarnOfNoEffect(fields);
    return CheckAgreement();
  }

  absl::Status ReadSummaryMode(const Value* value) {
    size_t mode = 0;
    if (absl::Status status = ReadChoice(value, "summary_mode", kSummaryModes, &mode); !status.ok()) {
      return absl::InvalidArgumentError(Cat("summary_mode is invalid, summary_mode is not in ",
                                            ShownList(kSummaryModes), ", currently it is ", Shown(*value), "."));
    }
    config_.summary_mode = static_cast<SummaryMode>(mode);
    return absl::OkStatus();
  }

  // bench_path and diff_nums, which compare checksums: summary_mode is md5 then.
  absl::Status ReadBench(const Value& fields) {
    if (!HasField(config_.task, "bench_path")) return absl::OkStatus();
    if (const Value* const value = Find(fields, "diff_nums"); value != nullptr) {
      if (!value->IsInt64() || (value->GetInt64() < 1 && value->GetInt64() != -1)) {
        return absl::InvalidArgumentError(Cat(
            "diff_nums is invalid, diff_nums should be -1 or positive integer, currently it is ", Shown(*value), "."));
      }
      config_.diff_nums = value->GetInt64();
    }
    const Value* const path = Find(fields, "bench_path");
    if (path == nullptr) {
      if (config_.task == Task::kDiffCheck) {
        return absl::InvalidArgumentError(
            "bench_path is required by task diff_check, it should be the dump_path of an earlier dump with "
            "summary_mode md5.");
      }
      return absl::OkStatus();
    }
    if (absl::Status status = ReadExistingDirectory(path, "bench_path", &config_.bench_path); !status.ok())
      return status;
    if (Find(fields, "summary_mode") != nullptr && config_.summary_mode != SummaryMode::kMd5) {
      return Contradiction(Cat("summary_mode \"", ToString(config_.summary_mode), "\""), "bench_path",
                           "what is compared are checksums, summary_mode should be md5 or absent.");
    }
    config_.summary_mode = SummaryMode::kMd5;
    return absl::OkStatus();
  }

  static absl::Status CheckPatterns(const std::vector<std::string>& list) {
    for (const std::string& text : list) {
      if (absl::Status status = NamePattern::Parse(text).status(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // What is accepted because other tools accept it, and does nothing.
  void WarnOfNoEffect(const Value& fields) {
    for (std::string_view field : AllTaskFields()) {
      const Value* const value = Find(fields, std::string(field).c_str());
      if (value == nullptr || HasField(config_.task, field)) continue;
      const bool nothing = value->IsArray() && value->Empty();
      if (!nothing) config_.warnings.push_back(Cat(field, " has no effect with task ", ToString(config_.task)));
    }
    if (!HasField(config_.task, "tensor_list")) config_.tensor_list.clear();
    if (!HasField(config_.task, "summary_mode")) config_.summary_mode = SummaryMode::kStatistics;
    if (!HasField(config_.task, "slice")) {
      config_.slice.clear();
      config_.request_id.clear();
    }
    if (config_.level != Level::kDebug) return;
    const auto drop = [&](std::string_view field, auto& value) {
      if (!value.empty()) config_.warnings.push_back(Cat(field, " has no effect at level debug"));
      value.clear();
    };
    drop("tensor_list", config_.tensor_list);
    drop("slice", config_.slice);
    drop("request_id", config_.request_id);
    drop("list", config_.list);
    drop("scope", config_.scope);
  }

  // Refuses two fields of which one undoes the other.
  absl::Status CheckAgreement() const {
    const bool debug = config_.level == Level::kDebug;
    if (async_dump_ && config_.summary_mode == SummaryMode::kMd5) {
      return absl::InvalidArgumentError(
          "The parameters async_dump is true, the parameters summary_mode cannot be md5.");
    }
    if (async_dump_ && config_.task == Task::kTensor && config_.list.empty() && !debug) {
      return absl::InvalidArgumentError(
          "The parameters async_dump is true in tensor task, the parameters list cannot be empty.");
    }
    if (debug &&
        (config_.task == Task::kNanCheck || config_.task == Task::kDiffCheck || config_.task == Task::kStructure)) {
      return Contradiction(Cat("task \"", ToString(config_.task), "\""), "level \"debug\"",
                           "at level debug task should be statistics or tensor.");
    }
    if (debug && config_.load) {
      return Contradiction("load", "level \"debug\"",
                           "its modules do not run through the debugger; level should be L0, L1 or mix.");
    }
    if (debug && !config_.bench_path.empty()) {
      return Contradiction("bench_path", "level \"debug\"",
                           "values saved by name have no counterpart; level should be L0, L1 or mix.");
    }
    if (config_.task == Task::kNanCheck && config_.input && !config_.output) {
      return Contradiction("data_mode [\"input\"]", "task \"nan_check\"",
                           "it looks at outputs; data_mode should name output or be [\"all\"].");
    }
    if (!config_.bench_path.empty() && !(config_.input && config_.output)) {
      return Contradiction(Cat("data_mode [\"", config_.input ? "input" : "output", "\"]"), "bench_path",
                           "outputs are compared where inputs are equal; data_mode should name both, or be [\"all\"].");
    }
    return CheckLoadAgreement();
  }

  absl::Status CheckLoadAgreement() const {
    if (!config_.load) return absl::OkStatus();
    const auto apart = [](const std::vector<uint32_t>& one, const std::vector<uint32_t>& other) {
      std::vector<uint32_t> common;
      std::set_intersection(one.begin(), one.end(), other.begin(), other.end(), std::back_inserter(common));
      return !one.empty() && !other.empty() && common.empty();
    };
    if (apart(config_.load->step, config_.step)) {
      return Contradiction("load.step", "step", "no step is in both; leave one of them out.");
    }
    if (apart(config_.load->rank, config_.rank)) {
      return Contradiction("load.rank", "rank", "no rank is in both; leave one of them out.");
    }
    return absl::OkStatus();
  }

  absl::Status ReadSessionMemory() {
    const Value* const given = Find(root_, "session_memory");
    if (absl::Status status = ReadString(given, "session_memory", &config_.session_memory); !status.ok()) return status;
    const std::string& place = config_.session_memory;
    std::error_code error;
    if (place.empty() || place == "off" || (place[0] == '/' && std::filesystem::is_directory(place, error))) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(Cat(
        "session_memory is invalid, it should be the absolute path of a directory, \"off\" or \"\", currently it is ",
        Shown(*given), "."));
  }

  absl::Status ReadOwn() {
    if (absl::Status status = ReadString(Find(root_, "server"), "server", &config_.server); !status.ok()) return status;
    if (absl::Status status = ReadString(Find(root_, "run"), "run", &config_.run); !status.ok()) return status;
    // The session takes what they name from the text, at every connection (ReadServerAccess).
    const absl::StatusOr<ServerAccess> access = ReadAccessPaths(root_);
    if (!access.ok()) return access.status();
    for (const auto& [out, name] : {std::pair(&config_.server, "MSPROBE_SERVER"), {&config_.run, "MSPROBE_RUN"}}) {
      const char* const environment = std::getenv(name);
      if (out->empty() && environment != nullptr) *out = environment;
    }
    if (!config_.server.empty()) {
      const absl::StatusOr<std::vector<std::string>> targets = ParseServerAddresses(config_.server);
      if (!targets.ok()) return targets.status();
      for (const std::string& target : *targets) {
        if (absl::Status status = access->CheckTarget(target); !status.ok()) return status;
      }
    }
    if (absl::Status status = ReadSessionMemory(); !status.ok()) return status;
    size_t loss = 0, capture = 0, backward = 0;
    auto reuse = static_cast<size_t>(config_.reuse);
    double ceiling = static_cast<double>(config_.memory_ceiling_bytes >> 20);
    double quota = static_cast<double>(config_.spool_quota_bytes >> 20);
    double dump_quota = 0;
    for (absl::Status status :
         {ReadChoice(Find(root_, "loss_policy"), "loss_policy", kLossPolicies, &loss),
          ReadNumber(Find(root_, "memory_ceiling_mb"), "memory_ceiling_mb", 1, 1 << 20, &ceiling),
          ReadNumber(Find(root_, "spool_quota_mb"), "spool_quota_mb", 0, 1 << 24, &quota),
          ReadNumber(Find(root_, "stall_bound_s"), "stall_bound_s", 0, 86400, &config_.stall_bound_seconds),
          ReadBool(Find(root_, "shared_memory"), "shared_memory", &config_.shared_memory),
          ReadWholeNumber(Find(root_, "max_steps"), "max_steps", &config_.max_steps),
          ReadNumber(Find(root_, "dump_quota_mb"), "dump_quota_mb", 0, 1 << 30, &dump_quota),
          ReadChoice(Find(root_, "capture"), "capture", kCaptures, &capture),
          ReadChoice(Find(root_, "backward"), "backward", kBackwards, &backward),
          ReadBool(Find(root_, "linear_weight_grad"), "linear_weight_grad", &config_.linear_weight_grad),
          ReadChoice(Find(root_, "reuse"), "reuse", kReuses, &reuse)}) {
      if (!status.ok()) return status;
    }
    config_.loss_policy = static_cast<LossPolicy>(loss);
    config_.reuse = static_cast<Reuse>(reuse);
    if (config_.loss_policy != LossPolicy::kSpool && Find(root_, "spool_quota_mb") != nullptr) {
      return Contradiction("spool_quota_mb", Cat("loss_policy \"", kLossPolicies[loss], "\""),
                           "only the policy spool writes to disk; leave one of them out.");
    }
    if (config_.loss_policy == LossPolicy::kDrop && Find(root_, "stall_bound_s") != nullptr) {
      return Contradiction("stall_bound_s", "loss_policy \"drop\"", "that policy never waits; leave one of them out.");
    }
    config_.memory_ceiling_bytes = static_cast<uint64_t>(ceiling * (1 << 20));
    config_.spool_quota_bytes = static_cast<uint64_t>(quota * (1 << 20));
    config_.dump_quota_bytes = static_cast<uint64_t>(std::ceil(dump_quota)) << 20;
    if (dump_quota > 0 && dump_quota < kLeastDumpQuota) {
      return absl::InvalidArgumentError(Cat("dump_quota_mb is invalid, it should be 0 or at least ", kLeastDumpQuota,
                                            ", as an empty store takes about 40, currently it is ", dump_quota, "."));
    }
    if (dump_quota > 0 && !config_.server.empty()) {
      config_.warnings.push_back(
          "dump_quota_mb has no effect with a named server, whose own limits hold (--run_quota_mib, --retain_mib)");
    }
    config_.capture_all = capture == 1;
    config_.exact_backward = backward == 1;
    return absl::OkStatus();
  }

  // Last, as it makes a directory.
  absl::Status ReadDumpPath() {
    std::string given;
    if (overrides_.dump_path.has_value()) {
      given = *overrides_.dump_path;
    } else {
      const Value* const value = Find(root_, "dump_path");
      if (value == nullptr && config_.load && !config_.load->dump_after_load) {
        config_.dump_path = config_.load->path;  // nothing is written
        return absl::OkStatus();
      }
      if (value == nullptr) {
        return absl::InvalidArgumentError("The dump_path not found. It should be a string, the path of a directory.");
      }
      if (absl::Status status = ReadString(value, "dump_path", &given); !status.ok()) return status;
    }
    absl::StatusOr<std::string> checked = CheckDumpPath(given);
    if (!checked.ok()) return checked.status();
    config_.dump_path = *std::move(checked);
    return absl::OkStatus();
  }

  const Value& root_;
  const ConfigOverrides& overrides_;
  Config config_;
  bool async_dump_ = false;
};

}  // namespace

absl::StatusOr<Config> ParseConfig(std::string_view json, const ConfigOverrides& overrides) {
  rapidjson::Document document;
  document.Parse<rapidjson::kParseFullPrecisionFlag>(json.data(), json.size());
  if (document.HasParseError()) {
    const std::string_view before = json.substr(0, document.GetErrorOffset());
    return absl::InvalidArgumentError(
        Cat("the configuration is not JSON: ", rapidjson::GetParseError_En(document.GetParseError()), " Line ",
            std::count(before.begin(), before.end(), '\n') + 1, "."));
  }
  if (!document.IsObject()) {
    return absl::InvalidArgumentError(
        Cat("the configuration should be a JSON object, currently it is ", Shown(document), "."));
  }
  absl::StatusOr<Config> config = Reader(document, overrides).Read();
  if (config.ok()) config->json = std::string(json);
  return config;
}

std::string_view ToString(Task task) { return kTasks[static_cast<size_t>(task)]; }
std::string_view ToString(Level level) { return kLevels[static_cast<size_t>(level)]; }
std::string_view ToString(SummaryMode mode) { return kSummaryModes[static_cast<size_t>(mode)]; }

}  // namespace msprobe::core
