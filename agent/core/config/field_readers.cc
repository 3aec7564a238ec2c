#include "agent/core/config/field_readers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "agent/core/config/json_values.h"
#include "agent/core/config/name_pattern.h"
#include "agent/core/config/selector.h"
#include "agent/core/config/server_address.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

using rapidjson::Value;

constexpr int kMinDumpQuotaMib = 64;

std::string_view TextOf(const Value& value) { return {value.GetString(), value.GetStringLength()}; }

absl::Status ReadSliceMember(const Value& rule, const char* name, bool may_be_negative, std::optional<int64_t>* out) {
  const auto member = rule.FindMember(name);
  if (member == rule.MemberEnd() || member->value.IsNull()) return absl::OkStatus();
  if (!member->value.IsInt64()) {
    return absl::InvalidArgumentError(Cat("Field '", name, "' in slice must be an integer, got ",
                                          TypeName(member->value), ": ", Shown(member->value)));
  }
  if (!may_be_negative && member->value.GetInt64() < 0) {
    return absl::InvalidArgumentError(Cat("slice.", name, " cannot be negative, got ", member->value.GetInt64()));
  }
  *out = member->value.GetInt64();
  return absl::OkStatus();
}

absl::Status ReadSliceRule(const Value& element, SliceRule* rule) {
  static constexpr std::array<std::string_view, 4> kMembers = {"dim", "size", "begin", "end"};
  for (const auto& member : element.GetObject()) {
    if (std::find(kMembers.begin(), kMembers.end(), member.name.GetString()) == kMembers.end()) {
      return absl::InvalidArgumentError(Cat("slice is invalid: unknown field \"", member.name.GetString(),
                                            "\"; an element has ", ShownList(kMembers), "."));
    }
  }
  std::optional<int64_t> dim, begin;
  for (absl::Status status :
       {ReadSliceMember(element, "dim", false, &dim), ReadSliceMember(element, "size", false, &rule->size),
        ReadSliceMember(element, "begin", true, &begin), ReadSliceMember(element, "end", true, &rule->end)}) {
    if (!status.ok()) return status;
  }
  rule->dim = dim.value_or(0);
  rule->begin = begin.value_or(0);
  return absl::OkStatus();
}

bool IsCount(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

bool IsDirection(const std::string& text) { return text == "forward" || text == "backward"; }

bool IsModuleKind(const std::string& text) { return text == "Module" || text == "Cell"; }

// Functional.linear.0.forward
bool IsApiName(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  const size_t size = parts.size();
  return size >= 4 && !parts[0].empty() && !IsModuleKind(parts[0]) && !parts[1].empty() && IsCount(parts[size - 2]) &&
         IsDirection(parts[size - 1]);
}

// Module.layers.0.Linear.forward.0
bool IsModuleName(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  const size_t size = parts.size();
  return size >= 4 && IsModuleKind(parts[0]) && !parts[1].empty() && IsDirection(parts[size - 2]) &&
         IsCount(parts[size - 1]);
}

// A list of elements that are among the field's choices; what: they are, in a message.
absl::Status ReadChoices(const Value& value, const Field& field, std::string_view what, std::vector<std::string>* out) {
  std::vector<std::string> list;
  if (absl::Status status = ReadStringList(value, field.name, &list); !status.ok()) return status;
  for (const std::string& each : list) {
    if (std::find(field.form.choices.begin(), field.form.choices.end(), each) == field.form.choices.end()) {
      return absl::InvalidArgumentError(Cat(field.name, " is invalid: \"", each, "\" is no ", what,
                                            "; it should be one of ", ShownList(field.form.choices), "."));
    }
  }
  *out = std::move(list);
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadTask(const Value& value, const Field& field, Config* config) {
  if (value.IsString() && !OtherTask(TextOf(value)).empty()) {
    return absl::InvalidArgumentError(Cat("task \"", TextOf(value), "\" is not supported, as it ",
                                          OtherTask(TextOf(value)), "; it should be one of ",
                                          ShownList(field.form.choices), "."));
  }
  size_t index = 0;
  absl::Status status = ReadChoice(value, field.name, field.form.choices, &index);
  config->task = static_cast<Task>(index);
  return status;
}

absl::Status ReadLevel(const Value& value, const Field& field, Config* config) {
  if (value.IsString() && TextOf(value) == "L2") {
    return absl::InvalidArgumentError(Cat(
        "level \"L2\" is not supported, as it makes the driver of an NPU dump its kernels; it should be one of ",
        ShownList(field.form.choices), ". L1 with the name of one API in list records the call that runs the kernel."));
  }
  auto index = static_cast<size_t>(config->level);
  absl::Status status = ReadChoice(value, field.name, field.form.choices, &index);
  config->level = static_cast<Level>(index);
  return status;
}

absl::Status ReadRiskLevel(const Value& value, const Field& field, Config* config) {
  auto index = static_cast<size_t>(RiskLevel::kAll);
  absl::Status status;
  if (!value.IsNull() && !(value.IsString() && value.GetStringLength() == 0)) {
    status = ReadChoice(value, field.name, field.form.choices, &index);
  }
  config->risk_level = static_cast<RiskLevel>(index);
  return status;
}

absl::Status ReadLoadModules(const Value& value, const Field& field, Config* config) {
  constexpr std::string_view kRule = "of full names like Module.layers.0.Linear.forward.0";
  std::vector<std::string> modules;
  if (absl::Status status = ReadStringList(value, field.name, &modules); !status.ok()) return status;
  for (const std::string& name : modules) {
    const std::vector<std::string> parts = absl::StrSplit(name, '.');
    if (IsModuleName(name) && parts[parts.size() - 2] == "forward") continue;
    return absl::InvalidArgumentError(
        Cat("load.modules is invalid, it should be a list ", kRule, ", but one is \"", name, "\"."));
  }
  config->load->modules = std::move(modules);
  return absl::OkStatus();
}

absl::Status ReadScope(const Value& value, const Field& field, Config* config) {
  std::vector<std::string> names;
  if (absl::Status status = ReadStringList(value, field.name, &names); !status.ok()) return status;
  if (!names.empty() && names.size() != 2) {
    return absl::InvalidArgumentError(
        Cat("Invalid scope: it should be a list of length 2, the full names that begin and end it; its length is ",
            names.size(), ": ", Shown(value)));
  }
  for (const std::string& name : names) {
    const bool api = IsApiName(name), module = IsModuleName(name);
    constexpr std::string_view kApi = "an API (Functional.linear.0.forward)";
    constexpr std::string_view kModule = "a module (Module.layers.0.Linear.forward.0)";
    std::string rule;
    if (config->level == Level::kL1 && !api) rule = kApi;
    if (config->level == Level::kL0 && !module) rule = kModule;
    if (config->level == Level::kMix && !api && !module) rule = Cat(kApi, " or ", kModule);
    if (rule.empty()) continue;
    return absl::InvalidArgumentError(Cat("Invalid scope: at level ", ToString(config->level),
                                          " each element should be the full name of ", rule, ", but one is \"", name,
                                          "\""));
  }
  config->scope = std::move(names);
  return absl::OkStatus();
}

absl::Status ReadList(const Value& value, const Field& field, Config* config) {
  if (absl::Status status = ReadStringList(value, field.name, &config->list); !status.ok()) return status;
  for (const std::string& text : config->list) {
    if (absl::Status status = NamePattern::Parse(text).status(); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ReadSelect(const Value& value, const Field& field, Config* config) {
  if (absl::Status status = ReadString(value, field.name, &config->select); !status.ok()) return status;
  return config->select.empty() ? absl::OkStatus() : Selector::Parse(config->select).status();
}

absl::Status ReadDataMode(const Value& value, const Field& field, Config* config) {
  static constexpr std::array<std::string_view, 5> kModes = {"all", "input", "output", "forward", "backward"};
  std::vector<std::string> modes;
  if (absl::Status status = ReadStringList(value, field.name, &modes); !status.ok()) return status;
  const auto has = [&](std::string_view mode) { return std::find(modes.begin(), modes.end(), mode) != modes.end(); };
  if (has("all") && modes.size() != 1) {
    return absl::InvalidArgumentError(
        Cat("'all' cannot be combined with other options in data_mode. Currently it is ", Shown(value), "."));
  }
  if (modes.size() >= kModes.size()) {
    return absl::InvalidArgumentError(Cat("The number of elements in the data_mode cannot exceed ", kModes.size() - 1,
                                          ", currently it is ", Shown(value), "."));
  }
  for (const std::string& mode : modes) {
    if (std::find(kModes.begin(), kModes.end(), mode) != kModes.end()) continue;
    return absl::InvalidArgumentError(
        Cat("The element '", mode, "' of data_mode ", Shown(value), " is not in ", ShownList(kModes), "."));
  }
  // Naming neither of a pair leaves both.
  const bool all = modes.empty() || has("all");
  const bool directions = !all && (has("forward") || has("backward"));
  const bool sides = !all && (has("input") || has("output"));
  config->forward = !directions || has("forward");
  config->backward = !directions || has("backward");
  config->input = !sides || has("input");
  config->output = !sides || has("output");
  return absl::OkStatus();
}

FieldValue GiveDataMode(const Config& config, const Field&) {
  if (config.forward && config.backward && config.input && config.output) return std::vector<std::string>{"all"};
  std::vector<std::string> modes;
  if (config.forward) modes.emplace_back("forward");
  if (config.backward) modes.emplace_back("backward");
  if (config.input) modes.emplace_back("input");
  if (config.output) modes.emplace_back("output");
  return modes;
}

absl::Status ReadSummaryMode(const Value& value, const Field& field, Config* config) {
  size_t mode = 0;
  if (absl::Status status = ReadChoice(value, field.name, field.form.choices, &mode); !status.ok()) {
    return absl::InvalidArgumentError(Cat("summary_mode is invalid, summary_mode is not in ",
                                          ShownList(field.form.choices), ", currently it is ", Shown(value), "."));
  }
  config->summary_mode = static_cast<SummaryMode>(mode);
  return absl::OkStatus();
}

absl::Status ReadSchedule(const Value& value, const Field&, Config* config) {
  static constexpr std::array<std::pair<std::string_view, uint64_t CaptureSchedule::*>, 5> kMembers = {
      {{"wait", &CaptureSchedule::wait},
       {"warmup", &CaptureSchedule::warmup},
       {"active", &CaptureSchedule::active},
       {"repeat", &CaptureSchedule::repeat},
       {"skip_first", &CaptureSchedule::skip_first}}};
  if (!value.IsObject()) {
    return absl::InvalidArgumentError(
        Cat("schedule is invalid, it should be a dict, currently it is ", Shown(value), "."));
  }
  CaptureSchedule schedule;
  schedule.active = 0;
  for (const auto& member : value.GetObject()) {
    const std::string_view name(member.name.GetString(), member.name.GetStringLength());
    const auto* const known =
        std::find_if(kMembers.begin(), kMembers.end(), [&](const auto& each) { return each.first == name; });
    if (known == kMembers.end()) {
      return absl::InvalidArgumentError(Cat("schedule is invalid: unknown field \"", name,
                                            "\"; it has wait, warmup, active, repeat and skip_first."));
    }
    uint64_t number = 0;
    absl::Status status = ReadWholeNumber(member.value, Cat("schedule.", name), &number, name == "active" ? 1 : 0);
    if (!status.ok()) return status;
    if (number > kLargestRankOrStep) {
      return absl::InvalidArgumentError(Cat("schedule.", name, " is invalid, it should be at most ", kLargestRankOrStep,
                                            ", currently it is ", number, "."));
    }
    schedule.*known->second = number;
  }
  if (schedule.active == 0) {
    return absl::InvalidArgumentError("schedule.active is required, it should be at least 1.");
  }
  config->schedule = schedule;
  return absl::OkStatus();
}

absl::Status ReadSlice(const Value& value, const Field&, Config* config) {
  const bool is_list = value.IsArray();
  if (!is_list || !std::all_of(value.Begin(), value.End(), [](const Value& each) { return each.IsObject(); })) {
    return absl::InvalidArgumentError(Cat("slice is invalid, it should be a ", is_list ? "list[dict]" : "list",
                                          ", currently it is ", Shown(value), "."));
  }
  std::vector<SliceRule> rules;
  for (const Value& element : value.GetArray()) {
    if (absl::Status status = ReadSliceRule(element, &rules.emplace_back()); !status.ok()) return status;
  }
  config->slice = std::move(rules);
  return absl::OkStatus();
}

absl::Status ReadDiffNums(const Value& value, const Field&, Config* config) {
  if (!value.IsInt64() || (value.GetInt64() < 1 && value.GetInt64() != -1)) {
    return absl::InvalidArgumentError(
        Cat("diff_nums is invalid, diff_nums should be -1 or positive integer, currently it is ", Shown(value), "."));
  }
  config->diff_nums = value.GetInt64();
  return absl::OkStatus();
}

absl::Status ReadGolden(const Value& value, const Field& field, Config* config) {
  if (absl::Status status = ReadString(value, field.name, &config->check.golden); !status.ok()) return status;
  if (!config->check.golden.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "golden is invalid, it should be cpu-fp64, cpu-raised or the name of a run, currently it is \"\".");
}

absl::Status ReadPolicy(const Value& value, const Field& field, Config* config) {
  size_t policy = 0;
  absl::Status status = ReadChoice(value, field.name, field.form.choices, &policy);
  if (status.ok()) config->check.policy = field.form.choices[policy];
  return status;
}

absl::Status ReadBounds(const Value& value, const Field& field, Config* config) {
  absl::Status refused =
      absl::InvalidArgumentError(Cat(field.name, " is invalid, it should be a list of at most 4096 numbers that grow, ",
                                     "each within the range of int64, currently it is ", Shown(value), "."));
  if (!value.IsArray() || value.Size() > 4096) return refused;
  std::vector<double> bounds;
  for (const Value& element : value.GetArray()) {
    constexpr double kEnd = 9223372036854775808.0;  // of int64
    if (!element.IsNumber() || (element.IsUint64() && !element.IsInt64())) return refused;
    const double bound = element.GetDouble();
    if (!(bound >= -kEnd && bound <= kEnd) || (!bounds.empty() && bound <= bounds.back())) return refused;
    bounds.push_back(bound);
  }
  config->grad_probe.bounds = std::move(bounds);
  return absl::OkStatus();
}

absl::Status ReadOps(const Value& value, const Field& field, Config* config) {
  std::vector<std::string> ops;
  if (absl::Status status = ReadChoices(value, field, "statistic", &ops); !status.ok()) return status;
  if (!ops.empty()) config->monitor.ops = std::move(ops);
  return absl::OkStatus();
}

absl::Status ReadModelSeries(const Value& value, const Field& field, Config* config) {
  return ReadChoices(value, field, "series of a model", &config->monitor.model_series);
}

absl::Status ReadRouters(const Value& value, const Field& field, Config* config) {
  std::string text;
  if (absl::Status status = ReadString(value, field.name, &text); !status.ok()) return status;
  if (absl::Status status = Selector::Parse(text, field.name).status(); !status.ok()) return status;
  config->monitor.routers = std::move(text);
  return absl::OkStatus();
}

absl::Status ReadRun(const Value& value, const Field& field, Config* config) {
  if (absl::Status status = ReadString(value, field.name, &config->run); !status.ok()) return status;
  if (config->run.size() <= kLongestRunName) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("run is invalid, it should have at most ", kLongestRunName,
                                        " bytes, currently it has ", config->run.size(), "."));
}

absl::Status ReadServer(const Value& value, const Field& field, Config* config) {
  if (absl::Status status = ReadString(value, field.name, &config->session.server); !status.ok()) return status;
  if (config->session.server.empty()) return absl::OkStatus();
  return ParseServerAddresses(config->session.server).status();
}

absl::Status ReadSessionMemory(const Value& value, const Field& field, Config* config) {
  std::string place;
  if (absl::Status status = ReadString(value, field.name, &place); !status.ok()) return status;
  std::error_code error;
  if (!place.empty() && place != "off" && !(place[0] == '/' && std::filesystem::is_directory(place, error))) {
    return absl::InvalidArgumentError(Cat(
        "session_memory is invalid, it should be the absolute path of a directory, \"off\" or \"\", currently it is ",
        Shown(value), "."));
  }
  config->session.session_memory = std::move(place);
  return absl::OkStatus();
}

absl::Status ReadDumpQuota(const Value& value, const Field& field, Config* config) {
  double mebibytes = 0;
  if (absl::Status status = ReadNumber(value, field.name, field.form.low, field.form.high, &mebibytes); !status.ok()) {
    return status;
  }
  if (mebibytes > 0 && mebibytes < kMinDumpQuotaMib) {
    return absl::InvalidArgumentError(Cat("dump_quota_mb is invalid, it should be 0 or at least ", kMinDumpQuotaMib,
                                          ", as an empty store takes about 40, currently it is ", mebibytes, "."));
  }
  config->session.dump_quota_bytes = static_cast<uint64_t>(std::ceil(mebibytes)) << 20;
  return absl::OkStatus();
}

absl::Status ReadUnused(const Value& value, const Field& field, Config*) {
  std::string unused;
  return ReadString(value, field.name, &unused);
}

}  // namespace msprobe::core
