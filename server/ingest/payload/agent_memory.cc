#include "server/ingest/payload/agent_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <string_view>

#include "server/format/cat.h"
#include "server/ingest/session/process_check.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kPrefix = "msprobe-";
constexpr size_t kDigits = 32;

bool IsName(std::string_view name) {
  return name.size() == kPrefix.size() + kDigits && name.starts_with(kPrefix) &&
         name.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

bool IsOurs(int descriptor) {
  struct stat found {};
  return fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == geteuid();
}

}  // namespace

std::unique_ptr<AgentMemory> AgentMemory::Open(const v1::Hello& hello, const std::vector<std::string>& directories) {
  if (!IsName(hello.shared_file()) || !IsThisBoot(hello)) return nullptr;
  for (const std::string& directory : directories) {
    const std::string path = Cat(directory, "/", hello.shared_file());
    const int descriptor = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor < 0) continue;
    if (IsOurs(descriptor)) return std::unique_ptr<AgentMemory>(new AgentMemory(descriptor));
    close(descriptor);
  }
  return nullptr;
}

AgentMemory::~AgentMemory() { close(descriptor_); }

absl::Status AgentMemory::Read(uint64_t offset, size_t size, char* out) const {
  size_t done = 0;
  while (done < size && offset <= uint64_t{std::numeric_limits<off_t>::max()} - size) {
    const ssize_t got = pread(descriptor_, out + done, size - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  if (done == size) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat("the shared file has ", done, " of ", size, " bytes at offset ", offset));
}

}  // namespace msprobe::server
