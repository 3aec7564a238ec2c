#include "agent/core/utf8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

// Bytes of the well-formed sequence at the start of `text`; 0: there is none. See table 3-7 of the Unicode standard.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!continues(1) || !continues(2)) return 0;
    if (first == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
    if (first == 0xED && byte(1) > 0x9F) return 0;  // surrogates
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if (first == 0xF0 && byte(1) < 0x90) return 0;  // overlong
    if (first == 0xF4 && byte(1) > 0x8F) return 0;  // beyond U+10FFFF
    return 4;
  }
  return 0;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string ToUtf8(std::string_view text) {
  if (IsUtf8(text)) return std::string(text);
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    if (length == 0) {
      result += "\xEF\xBF\xBD";
      text.remove_prefix(1);
    } else {
      result.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return result;
}

std::string Visible(std::string_view text) {
  std::string visible;
  visible.reserve(text.size());
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
    const uint32_t code = length == 3   ? (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F)
                          : length == 2 ? (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F)
                                        : byte(0);
    const bool moves = code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x2028 || code == 0x2029;
    const bool turns = (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
    if (length == 4 || (length > 0 && !moves && !turns)) {
      visible += text.substr(0, length);
    } else if (code == '\n' || code == '\t') {
      visible += code == '\n' ? "\\n" : "\\t";
    } else {
      visible +=
          code < 0x100 ? Cat("\\x", absl::Hex(code, absl::kZeroPad2)) : Cat("\\u", absl::Hex(code, absl::kZeroPad4));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return visible;
}

}  // namespace msprobe::core
