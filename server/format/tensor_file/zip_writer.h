#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// Writes a zip of stored entries from front to back, in the layout of torch.save. The content of every entry starts at
// a multiple of 64 (padded by an extra field "FB"). CRC and sizes are in data descriptors and in the central directory.
// The end records are always zip64; other fields are 64 bits wide where 32 are not enough. Threads: one at a time.
class ZipWriter {
 public:
  // Borrows `sink`.
  explicit ZipWriter(ByteSink* sink) : sink_(sink) {}

  // `size` must be exact: otherwise End fails.
  absl::Status Begin(std::string_view name, uint64_t size);
  absl::Status Append(std::string_view content);
  absl::Status End();
  absl::Status Add(std::string_view name, std::string_view content);
  // Writes the central directory. Nothing may be written afterwards.
  absl::Status Finish();

  // The CRC of the last entry that was ended.
  uint32_t crc() const { return entries_.back().crc; }

 private:
  struct Entry {
    std::string name;
    uint64_t offset = 0;  // of the local header
    uint64_t size = 0;
    uint32_t crc = 0;
  };

  absl::Status Emit(std::string_view bytes);

  ByteSink* const sink_;
  uint64_t offset_ = 0;
  uint64_t remaining_ = 0;  // bytes that the open entry still lacks
  std::vector<Entry> entries_;
};

}  // namespace msprobe::server
