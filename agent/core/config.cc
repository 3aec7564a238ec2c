#include "agent/core/config.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "agent/core/config_field.h"
#include "agent/core/dump_path.h"
#include "agent/core/server_address.h"
#include "agent/core/str_cat.h"
#include "rapidjson/error/en.h"

namespace msprobe::core {
namespace {

using rapidjson::Value;

constexpr std::array<std::string_view, 3> kTasks = {"statistics", "tensor", "structure"};
constexpr std::array<std::string_view, 4> kOtherTasks = {"acc_check", "diff_check", "exception_dump", "nan_check"};
constexpr std::array<std::string_view, 4> kLevels = {"L0", "L1", "mix", "debug"};
constexpr std::array<std::string_view, 3> kSummaryModes = {"statistics", "md5", "xor"};
constexpr std::array<std::string_view, 3> kRiskLevels = {"CORE", "FOCUS", "ALL"};
constexpr std::array<std::string_view, 2> kPrecisions = {"low", "high"};
constexpr std::array<std::string_view, 3> kLossPolicies = {"spool", "stall", "drop"};
constexpr std::array<std::string_view, 2> kCaptures = {"listed", "all"};
constexpr std::array<std::string_view, 3> kReuses = {"off", "parameters", "all"};

constexpr std::array<std::string_view, 27> kTopFields = {"task",
                                                         "dump_path",
                                                         "rank",
                                                         "step",
                                                         "level",
                                                         "dump_enable",
                                                         "extra_info",
                                                         "async_dump",
                                                         "precision",
                                                         "risk_level",
                                                         "custom_op_namespaces",
                                                         "load",
                                                         "server",
                                                         "run",
                                                         "loss_policy",
                                                         "memory_ceiling_mb",
                                                         "spool_quota_mb",
                                                         "stall_bound_s",
                                                         "capture",
                                                         "reuse",
                                                         "statistics",
                                                         "tensor",
                                                         "structure",
                                                         "acc_check",
                                                         "diff_check",
                                                         "exception_dump",
                                                         "nan_check"};
constexpr std::array<std::string_view, 9> kTaskFields = {
    "scope", "list", "tensor_list", "data_mode", "summary_mode", "slice", "request_id", "bench_path", "diff_nums"};

// A member that is absent or null is null.
const Value* Find(const Value& object, const char* name) {
  if (!object.IsObject()) return nullptr;
  const auto member = object.FindMember(name);
  return member == object.MemberEnd() || member->value.IsNull() ? nullptr : &member->value;
}

absl::Status NotSupported(std::string_view field, std::string_view value, std::span<const std::string_view> allowed) {
  return absl::InvalidArgumentError(Cat(field, " \"", value, "\" is not supported by this version, ",
                                        "it should be one of ", ShownList(allowed), "."));
}

void WarnOfUnknown(const Value& object, std::string_view where, std::span<const std::string_view> known,
                   std::vector<std::string>* warnings) {
  for (const auto& member : object.GetObject()) {
    const std::string_view name(member.name.GetString(), member.name.GetStringLength());
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string_view nearest = Nearest(name, known);
    warnings->push_back(Cat("unknown field \"", name, "\" ", where, " has no effect",
                            nearest.empty() ? "" : Cat("; did you mean \"", nearest, "\"?")));
  }
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
    if (value != nullptr && value->IsString() &&
        std::find(kOtherTasks.begin(), kOtherTasks.end(), value->GetString()) != kOtherTasks.end()) {
      return NotSupported("task", value->GetString(), kTasks);
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
      return NotSupported("level", "L2", kLevels);
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
    WarnOfUnknown(root_, "in the configuration", kTopFields, &config_.warnings);
    if (absl::Status status = ReadRankOrStep(Find(root_, "rank"), "rank", &config_.rank); !status.ok()) return status;
    if (overrides_.step.has_value()) {
      for (const std::string& text : *overrides_.step) {
        if (absl::Status status = AddRankOrStep(text, "step", &config_.step); !status.ok()) return status;
      }
      SortUnique(&config_.step);
    } else if (absl::Status status = ReadRankOrStep(Find(root_, "step"), "step", &config_.step); !status.ok()) {
      return status;
    }
    bool dump_enable = true;
    if (absl::Status status = ReadBool(Find(root_, "dump_enable"), "dump_enable", &dump_enable); !status.ok()) {
      return status;
    }
    if (Find(root_, "dump_enable") != nullptr) {
      config_.warnings.push_back("dump_enable has no effect in this version: the configuration is read once");
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
    if (Find(root_, "load") != nullptr) {
      return absl::InvalidArgumentError("load is not supported by this version, it should be absent or null.");
    }
    std::vector<std::string> namespaces;
    if (absl::Status status = ReadStringList(Find(root_, "custom_op_namespaces"), "custom_op_namespaces", &namespaces);
        !status.ok()) {
      return status;
    }
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

  absl::Status ReadTaskSection() {
    const std::string name(ToString(config_.task));
    const Value* const section = Find(root_, name.c_str());
    if (section != nullptr && !section->IsObject()) {
      return absl::InvalidArgumentError(
          Cat(name, " is invalid, it should be a dict, currently it is ", Shown(*section), "."));
    }
    const Value empty(rapidjson::kObjectType);
    const Value& fields = section == nullptr ? empty : *section;
    WarnOfUnknown(fields, Cat("in section \"", name, "\""), kTaskFields, &config_.warnings);
    size_t mode = 0;
    for (absl::Status status :
         {ReadScope(Find(fields, "scope"), config_.level, &config_.scope),
          ReadStringList(Find(fields, "list"), "list", &config_.list),
          ReadStringList(Find(fields, "tensor_list"), "tensor_list", &config_.tensor_list),
          ReadDataMode(Find(fields, "data_mode"), &config_), ReadSlice(Find(fields, "slice"), &config_.slice)}) {
      if (!status.ok()) return status;
    }
    const Value* const summary_mode = Find(fields, "summary_mode");
    if (absl::Status status = ReadChoice(summary_mode, "summary_mode", kSummaryModes, &mode); !status.ok()) {
      return absl::InvalidArgumentError(Cat("summary_mode is invalid, summary_mode is not in ",
                                            ShownList(kSummaryModes), ", currently it is ", Shown(*summary_mode), "."));
    }
    config_.summary_mode = static_cast<SummaryMode>(mode);
    for (const char* unsupported : {"request_id", "bench_path"}) {
      if (Find(fields, unsupported) == nullptr) continue;
      return absl::InvalidArgumentError(Cat(unsupported, " ", Shown(*Find(fields, unsupported)),
                                            " is not supported by this version, it should be absent or null."));
    }
    return CheckAsyncDump();
  }

  absl::Status CheckAsyncDump() const {
    if (!async_dump_) return absl::OkStatus();
    if (config_.summary_mode == SummaryMode::kMd5) {
      return absl::InvalidArgumentError(
          "The parameters async_dump is true, the parameters summary_mode cannot be md5.");
    }
    if (config_.task == Task::kTensor && config_.list.empty() && config_.level != Level::kDebug) {
      return absl::InvalidArgumentError(
          "The parameters async_dump is true in tensor task, the parameters list cannot be empty.");
    }
    return absl::OkStatus();
  }

  absl::Status ReadOwn() {
    if (absl::Status status = ReadString(Find(root_, "server"), "server", &config_.server); !status.ok()) return status;
    if (absl::Status status = ReadString(Find(root_, "run"), "run", &config_.run); !status.ok()) return status;
    for (const auto& [out, name] : {std::pair(&config_.server, "MSPROBE_SERVER"), {&config_.run, "MSPROBE_RUN"}}) {
      const char* const environment = std::getenv(name);
      if (out->empty() && environment != nullptr) *out = environment;
    }
    if (!config_.server.empty()) {
      if (absl::Status status = ParseServerAddress(config_.server).status(); !status.ok()) return status;
    }
    size_t loss = 0, capture = 0, reuse = 0;
    double ceiling = static_cast<double>(config_.memory_ceiling_bytes >> 20);
    double quota = static_cast<double>(config_.spool_quota_bytes >> 20);
    for (absl::Status status :
         {ReadChoice(Find(root_, "loss_policy"), "loss_policy", kLossPolicies, &loss),
          ReadNumber(Find(root_, "memory_ceiling_mb"), "memory_ceiling_mb", 1, 1 << 20, &ceiling),
          ReadNumber(Find(root_, "spool_quota_mb"), "spool_quota_mb", 0, 1 << 24, &quota),
          ReadNumber(Find(root_, "stall_bound_s"), "stall_bound_s", 0, 86400, &config_.stall_bound_seconds),
          ReadChoice(Find(root_, "capture"), "capture", kCaptures, &capture),
          ReadChoice(Find(root_, "reuse"), "reuse", kReuses, &reuse)}) {
      if (!status.ok()) return status;
    }
    config_.loss_policy = static_cast<LossPolicy>(loss);
    config_.memory_ceiling_bytes = static_cast<uint64_t>(ceiling * (1 << 20));
    config_.spool_quota_bytes = static_cast<uint64_t>(quota * (1 << 20));
    config_.capture_all = capture == 1;
    return absl::OkStatus();
  }

  // Last, as it makes a directory.
  absl::Status ReadDumpPath() {
    std::string given;
    if (overrides_.dump_path.has_value()) {
      given = *overrides_.dump_path;
    } else {
      const Value* const value = Find(root_, "dump_path");
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
