#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/format/tensor_file/byte_source.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

struct ZipEntry {
  std::string name;
  uint64_t header_offset = 0;
  uint64_t compressed_size = 0;
  uint64_t size = 0;
  uint32_t crc = 0;
  bool deflated = false;
};

// Reads zips with stored and deflated entries, also zip64, from bytes that are not trusted: no length in the file leads
// to an allocation that the file's own size does not justify: an entry unfolds to 16 MiB, or to a hundred times its
// size. Borrows `source`. Threads: one at a time.
class ZipReader {
 public:
  // InvalidArgument: the source is not a zip, or is encrypted, split over disks, damaged, has over 65536 entries, or
  // one that unfolds to more.
  static absl::StatusOr<ZipReader> Open(ByteSource& source);

  const std::vector<ZipEntry>& entries() const { return entries_; }
  // The first entry with that name; null: there is none.
  const ZipEntry* Find(std::string_view name) const;

  // Where the bytes of an entry begin in the source; those of a stored one are its content.
  absl::StatusOr<uint64_t> ContentOffset(const ZipEntry& entry);
  // Visits the content in order, in chunks of at most 1 MiB, and checks the CRC after the last.
  absl::Status Read(const ZipEntry& entry, ContentVisitor visit);
  // InvalidArgument: the entry is larger than `limit`.
  absl::StatusOr<std::string> ReadWhole(const ZipEntry& entry, uint64_t limit);

 private:
  explicit ZipReader(ByteSource& source) : source_(&source) {}

  absl::Status ReadStored(const ZipEntry& entry, uint64_t offset, ContentVisitor visit);
  absl::Status Inflate(const ZipEntry& entry, uint64_t offset, ContentVisitor visit);

  ByteSource* source_;
  std::vector<ZipEntry> entries_;
};

}  // namespace msprobe::server
