#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace msprobe::server {

// One line of a configuration file.
struct SettingLine {
  std::string name;
  std::string value;
  int line = 0;
};

// Lines of the form "name = value". A line that begins with # is a comment; a value may be in double quotes.
// InvalidArgument: "line 3: ...".
absl::StatusOr<std::vector<SettingLine>> ParseSettings(std::string_view text);

// The flags of this program come from three places. The command line goes before the environment (MSPROBE_ and the
// flag's name in capitals), the environment before the file, and the file before the default.
//
// 1. A setting that is not a flag of the server, or whose value does not parse, is an error that names it.
// 2. Some flags belong to one start and may be given on the command line only; see kCommandLineOnly.
// 3. Reload changes reloadable flags only. If the file is wrong, it changes nothing.
// Threads: one, the thread that reads the flags.
class Settings {
 public:
  // `arguments`: argv of main, before absl parses it.
  explicit Settings(const std::vector<std::string>& arguments);

  // Call once, after the command line was parsed. `file` may be empty.
  absl::Status Load(const std::string& file);
  // Reads the file again. Returns the names of changed settings that need a restart.
  absl::StatusOr<std::vector<std::string>> Reload();

  // One line for each setting, by name: "listen = 127.0.0.1:50051   (default)".
  std::string Describe() const;

  static bool IsReloadable(std::string_view name);

 private:
  absl::StatusOr<std::map<std::string, std::string>> ReadFile() const;

  const std::set<std::string> given_;
  std::string file_;
  std::map<std::string, std::string> from_environment_;
  std::map<std::string, std::string> from_file_;
};

}  // namespace msprobe::server
