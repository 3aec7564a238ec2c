#include "server/format/tensor_file/zip_writer.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <type_traits>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kLimit32 = 0xFFFFFFFF;
constexpr uint64_t kAlignment = 64;
constexpr uint16_t kFlags = 0x0808;  // data descriptor, UTF-8 names
constexpr size_t kLocalHeaderSize = 30;

template <typename T>
void Put(std::string& out, std::type_identity_t<T> value) {
  for (size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<char>((static_cast<uint64_t>(value) >> (8 * i)) & 0xFF));
}

uint32_t Clamp32(uint64_t value) { return static_cast<uint32_t>(std::min(value, kLimit32)); }

}  // namespace

absl::Status ZipWriter::Emit(std::string_view bytes) {
  offset_ += bytes.size();
  return (*sink_)(bytes);
}

absl::Status ZipWriter::Begin(std::string_view name, uint64_t size) {
  if (name.size() > 0xFFFF) return absl::InvalidArgumentError("a zip entry's name has more than 65535 bytes");
  const bool wide = size >= kLimit32;
  std::string extra;
  if (wide) {  // announces that the data descriptor has 64-bit sizes
    Put<uint16_t>(extra, 1);
    Put<uint16_t>(extra, 16);
    extra.append(16, '\0');
  }
  const uint64_t unpadded = offset_ + kLocalHeaderSize + name.size() + extra.size() + 4;
  const uint64_t padding = (kAlignment - unpadded % kAlignment) % kAlignment;
  extra += "FB";
  Put<uint16_t>(extra, padding);
  extra.append(padding, 'Z');

  std::string header;
  Put<uint32_t>(header, 0x04034b50);
  Put<uint16_t>(header, wide ? 45 : 0);
  Put<uint16_t>(header, kFlags);
  Put<uint16_t>(header, 0);  // stored
  Put<uint32_t>(header, 0);  // no time and date, so that equal tensors give equal files
  Put<uint32_t>(header, 0);
  Put<uint32_t>(header, wide ? kLimit32 : 0);
  Put<uint32_t>(header, wide ? kLimit32 : 0);
  Put<uint16_t>(header, name.size());
  Put<uint16_t>(header, extra.size());
  entries_.push_back({std::string(name), offset_, size, 0});
  remaining_ = size;
  return Emit(Cat(header, name, extra));
}

absl::Status ZipWriter::Append(std::string_view content) {
  if (content.size() > remaining_) {
    return absl::InvalidArgumentError(
        Cat("entry ", entries_.back().name, " has more than its ", entries_.back().size, " bytes"));
  }
  remaining_ -= content.size();
  entries_.back().crc =
      crc32_gzip_refl(entries_.back().crc, reinterpret_cast<const unsigned char*>(content.data()), content.size());
  return Emit(content);
}

absl::Status ZipWriter::End() {
  const Entry& entry = entries_.back();
  if (remaining_ != 0) {
    return absl::InvalidArgumentError(
        Cat("entry ", entry.name, " lacks ", remaining_, " of its ", entry.size, " bytes"));
  }
  std::string descriptor;
  Put<uint32_t>(descriptor, 0x08074b50);
  Put<uint32_t>(descriptor, entry.crc);
  for (int i = 0; i < 2; ++i) {
    if (entry.size >= kLimit32) {
      Put<uint64_t>(descriptor, entry.size);
    } else {
      Put<uint32_t>(descriptor, entry.size);
    }
  }
  return Emit(descriptor);
}

absl::Status ZipWriter::Add(std::string_view name, std::string_view content) {
  if (absl::Status status = Begin(name, content.size()); !status.ok()) return status;
  if (absl::Status status = Append(content); !status.ok()) return status;
  return End();
}

absl::Status ZipWriter::Finish() {
  const uint64_t directory = offset_;
  for (const Entry& entry : entries_) {
    std::string extra;
    if (entry.size >= kLimit32) {
      Put<uint64_t>(extra, entry.size);
      Put<uint64_t>(extra, entry.size);
    }
    if (entry.offset >= kLimit32) Put<uint64_t>(extra, entry.offset);
    std::string header;
    Put<uint32_t>(header, 0x02014b50);
    Put<uint16_t>(header, 0);
    Put<uint16_t>(header, extra.empty() ? 0 : 45);
    Put<uint16_t>(header, kFlags);
    Put<uint16_t>(header, 0);
    Put<uint32_t>(header, 0);
    Put<uint32_t>(header, entry.crc);
    Put<uint32_t>(header, Clamp32(entry.size));
    Put<uint32_t>(header, Clamp32(entry.size));
    Put<uint16_t>(header, entry.name.size());
    Put<uint16_t>(header, extra.empty() ? 0 : extra.size() + 4);
    Put<uint16_t>(header, 0);  // comment
    Put<uint16_t>(header, 0);  // disk
    Put<uint16_t>(header, 0);  // internal attributes
    Put<uint32_t>(header, 0);  // external attributes
    Put<uint32_t>(header, Clamp32(entry.offset));
    header += entry.name;
    if (!extra.empty()) {
      Put<uint16_t>(header, 1);
      Put<uint16_t>(header, extra.size());
      header += extra;
    }
    if (absl::Status status = Emit(header); !status.ok()) return status;
  }
  const uint64_t end = offset_;
  std::string tail;
  Put<uint32_t>(tail, 0x06064b50);
  Put<uint64_t>(tail, 44);
  Put<uint16_t>(tail, 45);
  Put<uint16_t>(tail, 45);
  Put<uint32_t>(tail, 0);
  Put<uint32_t>(tail, 0);
  Put<uint64_t>(tail, entries_.size());
  Put<uint64_t>(tail, entries_.size());
  Put<uint64_t>(tail, end - directory);
  Put<uint64_t>(tail, directory);
  Put<uint32_t>(tail, 0x07064b50);
  Put<uint32_t>(tail, 0);
  Put<uint64_t>(tail, end);
  Put<uint32_t>(tail, 1);
  Put<uint32_t>(tail, 0x06054b50);
  Put<uint32_t>(tail, 0);
  Put<uint16_t>(tail, entries_.size());
  Put<uint16_t>(tail, entries_.size());
  Put<uint32_t>(tail, Clamp32(end - directory));
  Put<uint32_t>(tail, Clamp32(directory));
  Put<uint16_t>(tail, 0);
  return Emit(tail);
}

}  // namespace msprobe::server
