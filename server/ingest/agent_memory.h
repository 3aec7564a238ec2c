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
// 1. Nothing is opened but a regular file of this server's own user, directly in one of the directories, named
//    "msprobe-" and 32 hexadecimal digits, and only for a Hello of this boot of this machine. What a client gains is to
//    have bytes compared with a hash that it has announced: they are stored only where they have it.
// 2. It is read, never mapped: who shortens it makes a read fail, not the server.
//
// Threads: one at a time.
class AgentMemory {
 public:
  static constexpr char kDirectory[] = "/dev/shm";

  // Null: there is none for this server, and payloads come in messages.
  static std::unique_ptr<AgentMemory> Open(const v1::Hello& hello, const std::vector<std::string>& directories);
  ~AgentMemory();

  // Exactly `size` bytes. InvalidArgument: the file has fewer.
  absl::Status Read(uint64_t offset, size_t size, char* out) const;

 private:
  explicit AgentMemory(int descriptor) : descriptor_(descriptor) {}

  const int descriptor_;
};

}  // namespace msprobe::server
