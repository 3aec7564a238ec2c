#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::server {

// The file in which an agent of this machine keeps its payloads (Hello.shared_file), open for reading.
//
// 1. Only a regular file of this server's own user is opened, directly in one of the directories, with a name of
//    "msprobe-" and 32 hexadecimal digits, and only for a Hello from this boot of this machine. All that a client gains
//    is that bytes are compared with a hash that it has announced; they are stored only if they have that hash.
// 2. The file is read, never mapped. If somebody shortens it, a read fails; the server does not.
//
// Threads: one at a time.
class AgentMemory {
 public:
  static constexpr char kDirectory[] = "/dev/shm";

  // Null: the agent has no such file here, and its payloads come in messages.
  static std::unique_ptr<AgentMemory> Open(const v1::Hello& hello, const std::vector<std::string>& directories);
  ~AgentMemory();

  // Exactly `size` bytes. InvalidArgument: the file has fewer.
  absl::Status Read(uint64_t offset, size_t size, char* out) const;

 private:
  explicit AgentMemory(int descriptor) : descriptor_(descriptor) {}

  const int descriptor_;
};

}  // namespace msprobe::server
