#include "agent/capture/reading/machine_load.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <system_error>

namespace msprobe::capture {

MachineLoad::MachineLoad(const char* load)
    : file_(open(load, O_RDONLY | O_CLOEXEC)), cores_(static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN))) {}

MachineLoad::~MachineLoad() {
  if (file_ >= 0) close(file_);
}

int MachineLoad::IdleCores() const {
  constexpr int kUnknown = -1;
  // "0.36 0.43 1.02 2/311 4711": two threads run, and the caller is one of them.
  char text[128];
  const ssize_t size = file_ < 0 ? -1 : pread(file_, text, sizeof text, 0);
  if (size <= 0) return kUnknown;
  std::string_view rest(text, static_cast<size_t>(size));
  for (int i = 0; i < 3; ++i) rest.remove_prefix(std::min(rest.size(), rest.find(' ') + 1));
  int running = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), running).ec != std::errc()) return kUnknown;
  return cores_ - running;
}

}  // namespace msprobe::capture
