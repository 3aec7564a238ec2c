#include "server/store/disk/private_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

// What a server makes in its data directory, and the agent that starts one.
constexpr std::array<std::string_view, 8> kOurs = {"store", "segments",    "backups",    "incoming",
                                                   "spool", "server.json", "server.log", "msprobe-server.lock"};

bool IsOurs(const fs::path& path) {
  return std::find(kOurs.begin(), kOurs.end(), path.filename().native()) != kOurs.end();
}

struct Mode {
  bool changeable = false;  // a file or directory of this user
  bool open = false;
  mode_t bits = 0;
};

Mode ModeOf(const fs::path& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return {};
  const bool kind = S_ISDIR(status.st_mode) || S_ISREG(status.st_mode);
  return {kind && status.st_uid == geteuid(), (status.st_mode & 077) != 0, status.st_mode};
}

size_t Close(const fs::path& path) {
  const Mode mode = ModeOf(path);
  return mode.changeable && mode.open && chmod(path.c_str(), mode.bits & 0700) == 0 ? 1 : 0;
}

}  // namespace

size_t CloseToOthers(const std::string& directory) {
  std::error_code error;
  const fs::path top = fs::canonical(directory, error);
  if (error || !ModeOf(top).open) return 0;
  bool ours_alone = true;
  size_t changed = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(top, error)) {
    if (!IsOurs(entry.path())) {
      ours_alone = false;
      continue;
    }
    changed += Close(entry.path());
    if (!entry.is_directory(error) || entry.is_symlink(error)) continue;
    for (fs::recursive_directory_iterator at(entry.path(), fs::directory_options::skip_permission_denied, error), end;
         !error && at != end; at.increment(error)) {
      changed += Close(at->path());
    }
  }
  if (ours_alone) changed += Close(top);
  return changed;
}

}  // namespace msprobe::server
