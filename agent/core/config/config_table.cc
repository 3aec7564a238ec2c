#include "agent/core/config/config_table.h"

#include <algorithm>
#include <array>
#include <utility>

#include "agent/core/config/config_field.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

constexpr std::array<std::string_view, 37> kTopFields = {"task",
                                                         "dump_path",
                                                         "rank",
                                                         "step",
                                                         "level",
                                                         "dump_enable",
                                                         "extra_info",
                                                         "async_dump",
                                                         "precision",
                                                         "risk_level",
                                                         "load",
                                                         "server",
                                                         "server_ca",
                                                         "server_cert",
                                                         "server_key",
                                                         "server_token_file",
                                                         "run",
                                                         "loss_policy",
                                                         "spool_quota_mb",
                                                         "stall_bound_s",
                                                         "shared_memory",
                                                         "session_memory",
                                                         "max_steps",
                                                         "dump_quota_mb",
                                                         "capture",
                                                         "backward",
                                                         "reuse",
                                                         "memory_ceiling_mb",
                                                         "custom_op_namespaces",
                                                         "linear_weight_grad",
                                                         "statistics",
                                                         "tensor",
                                                         "structure",
                                                         "diff_check",
                                                         "nan_check",
                                                         "acc_check",
                                                         "exception_dump"};
constexpr std::array<std::string_view, 5> kLoadFields = {"path", "modules", "step", "rank", "dump_after_load"};
constexpr std::array<std::string_view, 9> kTaskFields = {
    "scope", "list", "tensor_list", "data_mode", "summary_mode", "slice", "request_id", "bench_path", "diff_nums"};

// Of the top, those that WhyFixed lets pass.
constexpr std::array<std::string_view, 12> kLiveFields = {
    "task",       "level",   "rank",     "step",  "extra_info",           "precision",
    "risk_level", "capture", "backward", "reuse", "custom_op_namespaces", "linear_weight_grad"};
constexpr std::array<std::string_view, 7> kSections = {"statistics", "tensor",    "structure",     "diff_check",
                                                       "nan_check",  "acc_check", "exception_dump"};

constexpr std::pair<std::string_view, std::string_view> kOtherTasks[] = {
    {"acc_check", "runs recorded API calls again after the run, which is no capture"},
    {"multi_acc_check", "runs recorded API calls again after the run, which is no capture"},
    {"run_ut", "runs recorded API calls again after the run, which is no capture"},
    {"exception_dump", "exists for MindSpore only; nan_check finds NaN and Inf here"},
    {"overflow_check", "has become nan_check, which needs no register of the device"},
    {"free_benchmark", "perturbs operators, which is no capture"},
    {"grad_probe", "is a monitor of gradients; level L0 or mix records parameters_grad"},
};

bool Contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::span<const std::string_view> TopFields() { return kTopFields; }
std::span<const std::string_view> LoadFields() { return kLoadFields; }
std::span<const std::string_view> AllTaskFields() { return kTaskFields; }

bool HasField(Task task, std::string_view field) {
  if (field == "tensor_list") return task == Task::kStatistics || task == Task::kNanCheck;
  if (field == "bench_path" || field == "diff_nums") return task == Task::kTensor || task == Task::kDiffCheck;
  if (field == "slice" || field == "request_id") return task == Task::kStatistics || task == Task::kTensor;
  if (field == "summary_mode") return task != Task::kStructure && task != Task::kNanCheck;
  return Contains(kTaskFields, field);
}

std::string_view OtherTask(std::string_view task) {
  for (const auto& [name, what] : kOtherTasks) {
    if (name == task) return what;
  }
  return {};
}

std::string WhyFixed(std::string_view field) {
  if (Contains(kLiveFields, field) || Contains(kTaskFields, field)) return {};
  if (Contains(kSections, field)) return Cat(field, " is a section, whose fields are set by their own names");
  if (field == "dump_enable") return "dump_enable is switched by start and stop";
  if (Contains(kTopFields, field)) return Cat(field, " cannot be changed while the program runs");
  std::string_view nearest = Nearest(field, kLiveFields);
  if (nearest.empty()) nearest = Nearest(field, kTaskFields);
  return Cat("\"", field, "\" is no field of the configuration",
             nearest.empty() ? std::string() : Cat("; did you mean \"", nearest, "\"?"));
}

std::vector<std::string> ConfigFields() {
  std::vector<std::string> fields;
  for (std::string_view name : kTopFields) {
    if (name != "load" && !Contains(kSections, name)) fields.emplace_back(name);
  }
  for (std::string_view name : kLoadFields) fields.push_back(Cat("load.", name));
  for (std::string_view name : kTaskFields) fields.push_back(Cat("*.", name));
  return fields;
}

}  // namespace msprobe::core
