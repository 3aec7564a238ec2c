#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace msprobe::server {

// The numbers in tiles: varints and zigzag as in protobuf, and little-endian numbers of fixed size.
inline uint64_t ZigZag(uint64_t value) { return (value << 1) ^ (0 - (value >> 63)); }
inline uint64_t UnZigZag(uint64_t value) { return (value >> 1) ^ (0 - (value & 1)); }

inline void AppendVarint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

template <typename Number>
void AppendFixed(std::string& out, Number value) {
  char bytes[sizeof(Number)];
  std::memcpy(bytes, &value, sizeof(bytes));
  out.append(bytes, sizeof(bytes));
}

// Reads bytes from front to back. A read beyond the end gives zero and makes failed() true for good.
class ByteCursor {
 public:
  ByteCursor() = default;
  explicit ByteCursor(std::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool failed() const { return failed_; }
  size_t left() const { return static_cast<size_t>(end_ - at_); }

  uint8_t Byte() {
    if (at_ == end_) return static_cast<uint8_t>(Fail());
    return static_cast<uint8_t>(*at_++);
  }
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = Byte();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return Fail();
  }
  template <typename Number>
  Number Fixed() {
    Number value{};
    if (const char* bytes = Raw(sizeof(value)); bytes != nullptr) std::memcpy(&value, bytes, sizeof(value));
    return value;
  }
  // Null: fewer bytes are left.
  const char* Raw(uint64_t size) {
    if (size > left()) {
      Fail();
      return nullptr;
    }
    const char* const bytes = at_;
    at_ += size;
    return bytes;
  }
  std::string_view Text() {
    const uint64_t size = Varint();
    const char* const bytes = Raw(size);
    return bytes == nullptr ? std::string_view() : std::string_view(bytes, size);
  }

 private:
  uint64_t Fail() {
    failed_ = true;
    at_ = end_;
    return 0;
  }

  const char* at_ = nullptr;
  const char* end_ = nullptr;
  bool failed_ = false;
};

}  // namespace msprobe::server
