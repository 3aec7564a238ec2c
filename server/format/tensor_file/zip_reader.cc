#include "server/format/tensor_file/zip_reader.h"

#include <isa-l/crc.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr size_t kChunk = 1 << 20;
constexpr uint64_t kMaxEntries = 65536;
constexpr uint64_t kMaxDirectory = 64 << 20;
// Of a deflated entry. Elements of a model that anybody compressed stay far below.
constexpr uint64_t kFreeSize = 16 << 20;
constexpr uint64_t kMostTimes = 100;
constexpr uint64_t kEndSize = 22;
constexpr uint64_t kMaxComment = 0xFFFF;

template <typename T>
T Get(std::string_view bytes, size_t offset) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(bytes[offset + i])) << (8 * i));
  }
  return value;
}

absl::Status Damaged(std::string_view what) { return absl::InvalidArgumentError(Cat("damaged zip: ", what)); }

absl::StatusOr<std::string> ReadString(ByteSource& source, uint64_t offset, uint64_t size) {
  if (offset > source.size() || size > source.size() - offset) return Damaged("it ends too early");
  std::string bytes(size, '\0');
  if (absl::Status status = source.ReadAt(offset, {bytes.data(), bytes.size()}); !status.ok()) return status;
  return bytes;
}

struct Directory {
  uint64_t entries = 0;
  uint64_t size = 0;
  uint64_t offset = 0;
};

absl::StatusOr<Directory> FindDirectory(ByteSource& source) {
  if (source.size() < kEndSize) return absl::InvalidArgumentError("not a zip: too short");
  const uint64_t tail_size = std::min(source.size(), kEndSize + kMaxComment);
  const uint64_t tail_offset = source.size() - tail_size;
  absl::StatusOr<std::string> tail = ReadString(source, tail_offset, tail_size);
  if (!tail.ok()) return tail.status();
  const size_t end = tail->rfind(std::string_view("PK\x05\x06", 4));
  if (end == std::string::npos || end + kEndSize > tail->size()) {
    return absl::InvalidArgumentError("not a zip: no end of central directory");
  }
  Directory directory{Get<uint16_t>(*tail, end + 10), Get<uint32_t>(*tail, end + 12), Get<uint32_t>(*tail, end + 16)};
  const uint64_t end_offset = tail_offset + end;
  if (end_offset >= 20) {
    absl::StatusOr<std::string> locator = ReadString(source, end_offset - 20, 20);
    if (!locator.ok()) return locator.status();
    if (Get<uint32_t>(*locator, 0) == 0x07064b50) {
      absl::StatusOr<std::string> wide = ReadString(source, Get<uint64_t>(*locator, 8), 56);
      if (!wide.ok()) return wide.status();
      if (Get<uint32_t>(*wide, 0) != 0x06064b50) return Damaged("no zip64 end of central directory");
      directory = {Get<uint64_t>(*wide, 32), Get<uint64_t>(*wide, 40), Get<uint64_t>(*wide, 48)};
    }
  }
  if (directory.entries > kMaxEntries || directory.size > kMaxDirectory) {
    return absl::InvalidArgumentError(Cat("a zip with ", directory.entries, " entries; at most ", kMaxEntries));
  }
  return directory;
}

// Takes 64-bit fields from the extra area in place of 32-bit fields that are all ones.
absl::Status ApplyZip64(std::string_view extra, ZipEntry& entry) {
  while (extra.size() >= 4) {
    const uint16_t id = Get<uint16_t>(extra, 0);
    const uint16_t size = Get<uint16_t>(extra, 2);
    if (size > extra.size() - 4) return Damaged("an extra field passes its area");
    std::string_view field = extra.substr(4, size);
    if (id == 1) {
      for (uint64_t* value : {&entry.size, &entry.compressed_size, &entry.header_offset}) {
        if (*value != 0xFFFFFFFF) continue;
        if (field.size() < 8) return Damaged("a zip64 field is too short");
        *value = Get<uint64_t>(field, 0);
        field.remove_prefix(8);
      }
    }
    extra.remove_prefix(4 + size);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ZipReader> ZipReader::Open(ByteSource& source) {
  absl::StatusOr<Directory> directory = FindDirectory(source);
  if (!directory.ok()) return directory.status();
  absl::StatusOr<std::string> bytes = ReadString(source, directory->offset, directory->size);
  if (!bytes.ok()) return bytes.status();
  std::string_view rest = *bytes;
  ZipReader reader(source);
  for (uint64_t i = 0; i < directory->entries; ++i) {
    if (rest.size() < 46 || Get<uint32_t>(rest, 0) != 0x02014b50)
      return Damaged("a central directory entry is missing");
    const uint16_t flags = Get<uint16_t>(rest, 8);
    const uint16_t method = Get<uint16_t>(rest, 10);
    const size_t name_size = Get<uint16_t>(rest, 28);
    const size_t extra_size = Get<uint16_t>(rest, 30);
    const size_t comment_size = Get<uint16_t>(rest, 32);
    if (rest.size() - 46 < name_size + extra_size + comment_size)
      return Damaged("a central directory entry is cut off");
    ZipEntry entry;
    entry.name = std::string(rest.substr(46, name_size));
    entry.crc = Get<uint32_t>(rest, 16);
    entry.compressed_size = Get<uint32_t>(rest, 20);
    entry.size = Get<uint32_t>(rest, 24);
    entry.header_offset = Get<uint32_t>(rest, 42);
    entry.deflated = method == Z_DEFLATED;
    if (absl::Status status = ApplyZip64(rest.substr(46 + name_size, extra_size), entry); !status.ok()) return status;
    if ((flags & 1) != 0) return absl::InvalidArgumentError(Cat("zip entry ", entry.name, " is encrypted"));
    if (method != 0 && method != Z_DEFLATED) {
      return absl::InvalidArgumentError(
          Cat("zip entry ", entry.name, " has compression method ", method, "; stored and deflated are read"));
    }
    if (entry.compressed_size > source.size()) return Damaged(Cat("entry ", entry.name, " passes the end"));
    if (entry.size > std::max(kFreeSize, kMostTimes * entry.compressed_size)) {
      return absl::InvalidArgumentError(Cat("zip entry ", entry.name, " would unfold from ", entry.compressed_size,
                                            " to ", entry.size, " bytes, more than ", kMostTimes,
                                            " times as many; store it without compression"));
    }
    if (method == 0 && entry.size != entry.compressed_size) {
      return Damaged(Cat("stored entry ", entry.name, " has two sizes"));
    }
    reader.entries_.push_back(std::move(entry));
    rest.remove_prefix(46 + name_size + extra_size + comment_size);
  }
  return reader;
}

const ZipEntry* ZipReader::Find(std::string_view name) const {
  auto it = std::find_if(entries_.begin(), entries_.end(), [&](const ZipEntry& entry) { return entry.name == name; });
  return it == entries_.end() ? nullptr : &*it;
}

absl::StatusOr<uint64_t> ZipReader::ContentOffset(const ZipEntry& entry) {
  absl::StatusOr<std::string> header = ReadString(*source_, entry.header_offset, 30);
  if (!header.ok()) return header.status();
  if (Get<uint32_t>(*header, 0) != 0x04034b50) return Damaged(Cat("entry ", entry.name, " has no header"));
  const uint64_t offset =
      entry.header_offset + 30 + Get<uint16_t>(*header, 26) + static_cast<uint64_t>(Get<uint16_t>(*header, 28));
  if (offset > source_->size() || entry.compressed_size > source_->size() - offset) {
    return Damaged(Cat("entry ", entry.name, " passes the end"));
  }
  return offset;
}

absl::Status ZipReader::Read(const ZipEntry& entry, ContentVisitor visit) {
  absl::StatusOr<uint64_t> offset = ContentOffset(entry);
  if (!offset.ok()) return offset.status();
  uint32_t crc = 0;
  auto checked = [&](std::string_view chunk) {
    crc = crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(chunk.data()), chunk.size());
    return visit(chunk);
  };
  absl::Status status = entry.deflated ? Inflate(entry, *offset, checked) : ReadStored(entry, *offset, checked);
  if (!status.ok()) return status;
  if (crc != entry.crc) return Damaged(Cat("entry ", entry.name, " does not have its CRC"));
  return absl::OkStatus();
}

absl::Status ZipReader::ReadStored(const ZipEntry& entry, uint64_t offset, ContentVisitor visit) {
  std::string buffer(std::min<uint64_t>(kChunk, entry.size), '\0');
  for (uint64_t done = 0; done < entry.size;) {
    const size_t count = std::min<uint64_t>(buffer.size(), entry.size - done);
    if (absl::Status status = source_->ReadAt(offset + done, {buffer.data(), count}); !status.ok()) return status;
    if (absl::Status status = visit({buffer.data(), count}); !status.ok()) return status;
    done += count;
  }
  return absl::OkStatus();
}

absl::Status ZipReader::Inflate(const ZipEntry& entry, uint64_t offset, ContentVisitor visit) {
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return absl::ResourceExhaustedError("zlib cannot start");
  absl::Cleanup end = [&] { inflateEnd(&stream); };
  std::string input(kChunk, '\0'), output(kChunk, '\0');
  uint64_t taken = 0, given = 0;
  int code = Z_OK;
  while (code != Z_STREAM_END) {
    if (stream.avail_in == 0) {
      const size_t count = std::min<uint64_t>(input.size(), entry.compressed_size - taken);
      if (count == 0) return Damaged(Cat("entry ", entry.name, " is cut off"));
      if (absl::Status status = source_->ReadAt(offset + taken, {input.data(), count}); !status.ok()) return status;
      taken += count;
      stream.next_in = reinterpret_cast<Bytef*>(input.data());
      stream.avail_in = static_cast<uInt>(count);
    }
    stream.next_out = reinterpret_cast<Bytef*>(output.data());
    stream.avail_out = static_cast<uInt>(output.size());
    code = inflate(&stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END) return Damaged(Cat("entry ", entry.name, " does not inflate"));
    const size_t count = output.size() - stream.avail_out;
    given += count;
    if (given > entry.size) return Damaged(Cat("entry ", entry.name, " is longer than it says"));
    if (count > 0) {
      if (absl::Status status = visit({output.data(), count}); !status.ok()) return status;
    }
  }
  if (given != entry.size) return Damaged(Cat("entry ", entry.name, " is shorter than it says"));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ZipReader::ReadWhole(const ZipEntry& entry, uint64_t limit) {
  if (entry.size > limit) {
    return absl::InvalidArgumentError(Cat("zip entry ", entry.name, " has ", entry.size, " bytes; at most ", limit));
  }
  std::string whole;
  absl::Status status = Read(entry, [&](std::string_view chunk) {
    whole.append(chunk);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return whole;
}

}  // namespace msprobe::server
