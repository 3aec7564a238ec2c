#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// A zip of stored entries written front to back, as torch.save lays it out: the bytes of every entry start at a
// multiple of 64 (padded by an extra field "FB"), CRC and sizes stand in data descriptors and in the central directory,
// the end records are always zip64. Fields are 64 bits wide where 32 do not do. One thread at a time.
class ZipWriter {
 public:
  // Borrows `sink`.
  explicit ZipWriter(ByteSink* sink) : sink_(sink) {}

  // `size` is exact: an entry of another size makes End fail. `crc` needs not be known yet.
  absl::Status Begin(std::string_view name, uint64_t size);
  absl::Status Append(std::string_view content);
  absl::Status End();
  absl::Status Add(std::string_view name, std::string_view content);
  // The central directory. Nothing may be written afterwards.
  absl::Status Finish();

  // Of the entry ended last.
  uint32_t crc() const { return entries_.back().crc; }

 private:
  struct Entry {
    std::string name;
    uint64_t offset = 0;  // of its local header
    uint64_t size = 0;
    uint32_t crc = 0;
  };

  absl::Status Emit(std::string_view bytes);

  ByteSink* const sink_;
  uint64_t offset_ = 0;
  uint64_t remaining_ = 0;  // of the open entry
  std::vector<Entry> entries_;
};

}  // namespace msprobe::server
