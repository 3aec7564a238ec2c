#include "agent/core/payload/session_place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "agent/core/private_directory.h"
#include "agent/core/process_identity.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

constexpr std::string_view kPrefix = "msprobe-";
constexpr size_t kDigits = 32;

// The kernel's inode numbers of the initial namespaces.
constexpr ino_t kInitialIpc = 0xEFFFFFFF;
constexpr ino_t kInitialPid = 0xEFFFFFFC;

bool IsInNamespace(const char* path, ino_t number) {
  struct stat found {};
  return stat(path, &found) == 0 && found.st_ino == number;
}

bool SharedMemoryIsTheMachines() {
  return IsInNamespace("/proc/self/ns/ipc", kInitialIpc) || IsInNamespace("/proc/self/ns/pid", kInitialPid);
}

bool IsThere(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0;
}

absl::StatusOr<std::shared_ptr<SessionMemory>> MakeIn(const std::string& directory, size_t room,
                                                      const SessionOrigin& origin) {
  const std::string name = SessionMemoryName(origin.hello().session());
  const std::string path = Cat(directory, "/", name);
  const std::string& spool = origin.spool_directory();
  absl::StatusOr<std::shared_ptr<SessionMemory>> made;
  // A process that has sent the last left session removes the directory, perhaps just after it was made here.
  for (int attempt = 0; attempt < 3; ++attempt) {
    const bool linked = MakeClosedDirectories(spool).ok() && directory != spool;
    made = SessionMemory::Create(path, linked ? Cat(spool, "/", name) : "", room, origin);
    if (made.ok() || IsThere(spool)) break;
  }
  return made;
}

}  // namespace

std::string SessionMemoryName(const std::string& session_id) { return Cat(kPrefix, ToHex(session_id)); }

std::string_view SessionOfName(std::string_view file_name) {
  if (file_name.size() != kPrefix.size() + kDigits || !file_name.starts_with(kPrefix)) return {};
  const std::string_view digits = file_name.substr(kPrefix.size());
  return digits.find_first_not_of("0123456789abcdef") == std::string_view::npos ? digits : std::string_view();
}

std::shared_ptr<SessionMemory> MakeSessionMemory(const std::string& configured, size_t room,
                                                 const SessionOrigin& origin, std::string* why_not) {
  std::vector<std::string> directories;
  std::vector<std::string> reasons;
  if (configured == "off") return SessionMemory::Private();
  if (!configured.empty()) {
    directories.push_back(configured);
  } else {
    directories = {SharedFile::kDirectory, origin.spool_directory()};
    if (!SharedMemoryIsTheMachines()) std::swap(directories[0], directories[1]);
  }
  for (const std::string& directory : directories) {
    absl::StatusOr<std::shared_ptr<SessionMemory>> made = MakeIn(directory, room, origin);
    if (made.ok()) return *std::move(made);
    reasons.emplace_back(made.status().message());
  }
  *why_not = absl::StrJoin(reasons, "; ");
  return SessionMemory::Private();
}

}  // namespace msprobe::core
