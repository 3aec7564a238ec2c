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

// "name = value" lines; # begins a comment line; a value may stand in double quotes. InvalidArgument: "line 3: ...".
absl::StatusOr<std::vector<SettingLine>> ParseSettings(std::string_view text);

// Flags of this program from three places: the command line goes before the environment (MSPROBE_ and the flag's name
// in capitals), that before the file, that before the default.
//
// 1. A setting that is no flag of the server, or whose value does not parse, is refused by name.
// 2. Some flags are of one start and stand on the command line only; see kCommandLineOnly.
// 3. Reload changes reloadable flags only, all of them or, where the file is wrong, none.
// Threads: one, as flags are read by one.
class Settings {
 public:
  // `arguments` as main got them; read before absl parses them. `file`: empty is none.
  explicit Settings(const std::vector<std::string>& arguments);

  // Call once, after the command line was parsed.
  absl::Status Load(const std::string& file);
  // Reads the file of Load again. The names of settings that differ now and need a restart.
  absl::StatusOr<std::vector<std::string>> Reload();

  // "listen = 127.0.0.1:50051   (default)", a line each, in order of name.
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
