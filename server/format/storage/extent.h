#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace msprobe::server {

// The place and the checksum of one chunk's bytes: the value of column family "extents". docs/storage_format.md is the
// specification.
struct Extent {
  uint32_t segment = 0;
  uint32_t offset = 0;  // of the first byte in the segment's file, a multiple of kAlignment
  uint32_t size = 0;    // in bytes
  uint32_t crc32c = 0;  // of the bytes

  static constexpr uint32_t kAlignment = 4096;
  static constexpr size_t kBytes = 16;
  std::string Encode() const;
  static absl::StatusOr<Extent> Decode(std::string_view value);
  // The bytes that the chunk takes up in the file.
  uint64_t padded_size() const { return (uint64_t{size} + kAlignment - 1) / kAlignment * kAlignment; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

}  // namespace msprobe::server
