#include "server/metrics/visible.h"

#include <cstdint>

#include "absl/strings/str_format.h"

namespace msprobe::server {
namespace {

struct Character {
  char32_t code = 0;
  size_t bytes = 1;
  bool valid = false;
};

Character FirstOf(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  Character first{byte(0), 1, byte(0) < 0x80};
  if (first.valid) return first;
  const size_t bytes = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < bytes) return first;
  char32_t code = byte(0) & (0xff >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return first;
    code = code << 6 | (byte(i) & 0x3f);
  }
  return {code, bytes, true};
}

bool IsShown(char32_t code) {
  if (code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
  if (code == 0x2028 || code == 0x2029) return false;  // line and paragraph separators
  // Characters that turn the direction of writing.
  return !(code >= 0x202a && code <= 0x202e) && !(code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string Visible(std::string_view text) {
  std::string visible;
  visible.reserve(text.size());
  while (!text.empty()) {
    const Character first = FirstOf(text);
    if (first.valid && IsShown(first.code)) {
      visible += text.substr(0, first.bytes);
    } else if (first.code == '\n') {
      visible += "\\n";
    } else if (first.code == '\t') {
      visible += "\\t";
    } else {
      const auto code = static_cast<uint32_t>(first.code);
      visible += code < 0x100 ? absl::StrFormat("\\x%02x", code) : absl::StrFormat("\\u%04x", code);
    }
    text.remove_prefix(first.bytes);
  }
  return visible;
}

}  // namespace msprobe::server
