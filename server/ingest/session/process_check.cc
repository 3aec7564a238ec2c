#include "server/ingest/session/process_check.h"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

std::string FirstLine(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

}  // namespace

bool IsThisBoot(const v1::Hello& hello) {
  static const std::string boot_id = FirstLine("/proc/sys/kernel/random/boot_id");
  return !hello.boot_id().empty() && hello.boot_id() == boot_id;
}

ProcessState CheckProcess(const v1::Hello& hello) {
  if (!IsThisBoot(hello) || hello.process_id() == 0) return ProcessState::kUnknown;
  const std::string stat = FirstLine(Cat("/proc/", hello.process_id(), "/stat"));
  // The second field is the program's name in brackets, which may hold spaces and brackets itself.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return ProcessState::kGone;
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kState = 0, kStartTicks = 19;  // fields 3 and 22 of the whole line
  if (fields.size() <= kStartTicks || fields[kState] == "Z" || fields[kState] == "X") return ProcessState::kGone;
  uint64_t ticks = 0;
  if (!absl::SimpleAtoi(fields[kStartTicks], &ticks)) return ProcessState::kUnknown;
  return hello.process_start_ticks() == 0 || ticks == hello.process_start_ticks() ? ProcessState::kAlive
                                                                                  : ProcessState::kGone;
}

}  // namespace msprobe::server
