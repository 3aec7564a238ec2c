#include "agent/core/process_identity.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/strip.h"

namespace msprobe::core {
namespace {

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

}  // namespace

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

std::string BootId() { return std::string(absl::StripAsciiWhitespace(ReadFile("/proc/sys/kernel/random/boot_id"))); }

uint64_t ProcessStartTicks() {
  const std::string stat = ReadFile("/proc/self/stat");
  // The second field is in parentheses and may contain any character. The third follows the last parenthesis.
  const size_t end = stat.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  uint64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

uint64_t NetworkNamespace() {
  struct stat found {};
  return stat("/proc/self/ns/net", &found) == 0 ? found.st_ino : 0;
}

std::string RandomSessionId() {
  std::string id(16, '\0');
  if (getrandom(id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) {
    std::random_device device;
    for (char& byte : id) byte = static_cast<char>(device());
  }
  return id;
}

std::string TemporaryDirectory() {
  const char* directory = std::getenv("TMPDIR");
  return directory == nullptr || directory[0] != '/' ? "/tmp" : directory;
}

std::string ToHex(const std::string& bytes) { return absl::BytesToHexString(bytes); }

}  // namespace msprobe::core
