#include "server/app/settings.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// Flags that belong to one start, not to a machine. The last five are those that an agent gives to the server it
// starts.
constexpr std::array<std::string_view, 13> kCommandLineOnly = {
    "config",   "check",     "check_config",   "probe",     "recover",           "recover_to",    "recover_seconds",
    "embedded", "dump_path", "dump_quota_mib", "advertise", "idle_exit_seconds", "export_threads"};
constexpr std::array<std::string_view, 5> kReloadable = {"log_level", "retain_days", "retain_mib", "retain_runs",
                                                         "run_quota_mib"};

template <typename Names>
bool Contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The flags of the server, without those of its libraries.
std::vector<absl::CommandLineFlag*> OwnFlags() {
  std::vector<absl::CommandLineFlag*> own;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (flag->IsRetired() || flag->Filename().find("server/app/main.cc") == absl::string_view::npos) continue;
    if (!Contains(kCommandLineOnly, std::string(name))) own.push_back(flag);
  }
  std::sort(own.begin(), own.end(), [](const auto* a, const auto* b) { return a->Name() < b->Name(); });
  return own;
}

absl::CommandLineFlag* FindOwn(std::string_view name) {
  for (absl::CommandLineFlag* flag : OwnFlags()) {
    if (std::string(flag->Name()) == name) return flag;
  }
  return nullptr;
}

std::string EnvironmentName(std::string_view flag) { return Cat("MSPROBE_", absl::AsciiStrToUpper(std::string(flag))); }

absl::Status Assign(absl::CommandLineFlag& flag, const std::string& value, std::string_view where) {
  std::string error;
  if (flag.ParseFrom(value, &error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat(where, ": ", std::string(flag.Name()), " = ", value, " is not valid: ", error.empty() ? flag.Help() : error));
}

std::set<std::string> NamesOf(const std::vector<std::string>& arguments) {
  std::set<std::string> names;
  for (size_t i = 1; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& argument = arguments[i];
    const size_t begin = argument.find_first_not_of('-');
    if (begin == 0 || begin == std::string::npos) continue;
    std::string name = argument.substr(begin, argument.find('=') - begin);
    if (absl::FindCommandLineFlag(name) == nullptr && name.starts_with("no")) name = name.substr(2);
    names.insert(std::move(name));
  }
  return names;
}

}  // namespace

absl::StatusOr<std::vector<SettingLine>> ParseSettings(std::string_view text) {
  std::vector<SettingLine> settings;
  std::set<std::string> seen;
  int number = 0;
  for (absl::string_view raw : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (line.empty() || line.front() == '#') continue;
    const size_t equals = line.find('=');
    SettingLine setting;
    setting.line = number;
    setting.name = std::string(absl::StripAsciiWhitespace(line.substr(0, equals)));
    if (equals == absl::string_view::npos || setting.name.empty()) {
      return absl::InvalidArgumentError(
          Cat("line ", number, ": \"", std::string(line), "\" is not of the form name = value"));
    }
    absl::string_view value = absl::StripAsciiWhitespace(line.substr(equals + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
    setting.value = std::string(value);
    if (!seen.insert(setting.name).second) {
      return absl::InvalidArgumentError(Cat("line ", number, ": ", setting.name, " stands twice"));
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

bool Settings::IsReloadable(std::string_view name) { return Contains(kReloadable, name); }

Settings::Settings(const std::vector<std::string>& arguments) : given_(NamesOf(arguments)) {}

absl::StatusOr<std::map<std::string, std::string>> Settings::ReadFile() const {
  std::map<std::string, std::string> values;
  if (file_.empty()) return values;
  std::ifstream stream(file_);
  if (!stream) return absl::InvalidArgumentError(Cat("--config=", file_, " cannot be read"));
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  auto lines = ParseSettings(text);
  if (!lines.ok()) return absl::InvalidArgumentError(Cat(file_, ", ", lines.status().message()));
  for (const SettingLine& line : *lines) {
    const std::string where = Cat(file_, ", line ", line.line);
    if (Contains(kCommandLineOnly, line.name)) {
      return absl::InvalidArgumentError(Cat(where, ": ", line.name, " stands on the command line only"));
    }
    const absl::CommandLineFlag* const flag = FindOwn(line.name);
    if (flag == nullptr) {
      return absl::InvalidArgumentError(
          Cat(where, ": there is no setting \"", line.name, "\"; msprobe-server --help lists them"));
    }
    values[line.name] = line.value;
  }
  return values;
}

absl::Status Settings::Load(const std::string& file) {
  file_ = file;
  auto values = ReadFile();
  if (!values.ok()) return values.status();
  from_file_ = *std::move(values);
  for (absl::CommandLineFlag* flag : OwnFlags()) {
    const std::string name(flag->Name());
    const char* const value = std::getenv(EnvironmentName(name).c_str());
    if (value != nullptr) from_environment_[name] = value;
    if (given_.contains(name)) continue;
    absl::Status status;
    if (value != nullptr) {
      status = Assign(*flag, value, Cat("environment variable ", EnvironmentName(name)));
    } else if (const auto found = from_file_.find(name); found != from_file_.end()) {
      status = Assign(*flag, found->second, file_);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Settings::Reload() {
  auto values = ReadFile();
  if (!values.ok()) return values.status();
  std::map<std::string, std::string> before;
  std::vector<std::string> need_restart;
  absl::Status status;
  for (absl::CommandLineFlag* flag : OwnFlags()) {
    const std::string name(flag->Name());
    if (given_.contains(name) || from_environment_.contains(name)) continue;
    const auto found = values->find(name);
    const auto former = from_file_.find(name);
    const std::string value = found == values->end() ? flag->DefaultValue() : found->second;
    if (value == (former == from_file_.end() ? flag->DefaultValue() : former->second)) continue;
    before[name] = flag->CurrentValue();
    if (status = Assign(*flag, value, file_); !status.ok()) break;
    if (!IsReloadable(name)) need_restart.push_back(name);
  }
  // Settings that need a restart were assigned only to see whether they parse.
  for (const auto& [name, value] : before) {
    std::string error;
    if (!status.ok() || !IsReloadable(name)) FindOwn(name)->ParseFrom(value, &error);
  }
  if (!status.ok()) return status;
  for (const std::string& name : need_restart) {
    values->erase(name);
    if (const auto former = from_file_.find(name); former != from_file_.end()) (*values)[name] = former->second;
  }
  from_file_ = *std::move(values);
  return need_restart;
}

std::string Settings::Describe() const {
  std::string text;
  for (const absl::CommandLineFlag* flag : OwnFlags()) {
    const std::string name(flag->Name());
    std::string source = "default";
    if (given_.contains(name)) {
      source = "command line";
    } else if (from_environment_.contains(name)) {
      source = EnvironmentName(name);
    } else if (from_file_.contains(name)) {
      source = file_;
    }
    text += Cat(name, " = ", flag->CurrentValue(), "   (", source, ")\n");
  }
  return text;
}

}  // namespace msprobe::server
