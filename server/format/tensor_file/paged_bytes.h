#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "server/format/tensor_file/byte_source.h"

namespace msprobe::server {

// Reads short ranges of a source that lie far apart, many times over: the last pages stay in memory, 32 MiB at most,
// whatever the size of the source. Borrows the source. Threads: one at a time.
class PagedBytes {
 public:
  // streams: places in the source that are read in turn, each a little farther each time. Pages are so short that one
  // of each stays.
  PagedBytes(ByteSource& source, uint64_t streams);

  // The bytes from `offset` on. OutOfRange: the range goes beyond the end.
  absl::Status Copy(uint64_t offset, uint64_t size, char* to);

 private:
  struct Slot {
    uint64_t page = 0;
    bool used = false;  // since the hand passed
    std::string bytes;
  };

  absl::Status Find(uint64_t page, const Slot*& slot);

  ByteSource& source_;
  const uint64_t page_;                             // bytes
  const size_t limit_;                              // pages
  absl::flat_hash_map<uint64_t, uint32_t> places_;  // of pages in slots_
  std::vector<Slot> slots_;
  size_t hand_ = 0;  // of the clock that chooses the page to leave
};

}  // namespace msprobe::server
