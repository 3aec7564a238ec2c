#include "server/format/json/json_cursor.h"

#include <algorithm>
#include <cstring>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr int kMaxDepth = 400;  // as deep as mindstudio-probe reads

void AppendUtf8(uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | code >> 6);
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | code >> 12);
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code >> 18);
    out += static_cast<char>(0x80 | (code >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

bool IsNumberByte(char c) { return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'; }

// Four hexadecimal digits, or -1.
int Hex4(const char* at, const char* end) {
  if (end - at < 4) return -1;
  int code = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = at[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    code = code << 4 | digit;
  }
  return code;
}

}  // namespace

absl::Status JsonCursor::status() const {
  if (ok()) return absl::OkStatus();
  const std::string_view before(begin_, error_offset_);
  const size_t line = static_cast<size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const size_t newline = before.rfind('\n');
  const size_t column = newline == std::string_view::npos ? before.size() + 1 : before.size() - newline;
  return absl::InvalidArgumentError(Cat("line ", line, ", column ", column, ": ", error_));
}

void JsonCursor::Fail(std::string_view what) {
  if (!ok()) return;
  error_ = what;
  error_offset_ = offset();
  at_ = end_;
}

JsonCursor::Type JsonCursor::Peek() {
  SkipSpace();
  if (at_ == end_) return Type::kEnd;
  switch (*at_) {
    case '{':
      return Type::kObject;
    case '[':
      return Type::kArray;
    case '"':
      return Type::kString;
    case 't':
      return Type::kTrue;
    case 'f':
      return Type::kFalse;
    case 'n':
      return Type::kNull;
    case 'N':
      return Type::kNaN;
    case 'I':
      return Type::kInfinity;
    case '-':
      return at_ + 1 != end_ && at_[1] == 'I' ? Type::kMinusInfinity : Type::kNumber;
    default:
      if (*at_ >= '0' && *at_ <= '9') return Type::kNumber;
      Fail("a value is expected");
      return Type::kEnd;
  }
}

bool JsonCursor::EnterObject() {
  if (Peek() != Type::kObject) {
    Fail("an object is expected");
    return false;
  }
  ++at_;
  first_ = true;
  return true;
}

bool JsonCursor::EnterArray() {
  if (Peek() != Type::kArray) {
    Fail("a list is expected");
    return false;
  }
  ++at_;
  first_ = true;
  return true;
}

bool JsonCursor::Separator(char close) {
  SkipSpace();
  if (at_ == end_) {
    Fail("the text ends inside an object or a list");
    return false;
  }
  if (*at_ == close) {
    ++at_;
    first_ = false;
    return false;
  }
  if (!first_) {
    if (*at_ != ',') {
      Fail("a comma is expected");
      return false;
    }
    ++at_;
  }
  first_ = false;
  return true;
}

bool JsonCursor::NextKey(std::string_view& key) {
  if (!Separator('}')) return false;
  key = String();
  SkipSpace();
  if (!ok() || at_ == end_ || *at_ != ':') {
    Fail("a colon is expected");
    return false;
  }
  ++at_;
  return true;
}

bool JsonCursor::NextItem() { return Separator(']'); }

std::string_view JsonCursor::String() {
  SkipSpace();
  if (at_ == end_ || *at_ != '"') {
    Fail("a text is expected");
    return {};
  }
  const char* start = ++at_;
  const void* quote = std::memchr(start, '"', static_cast<size_t>(end_ - start));
  if (quote == nullptr) {
    Fail("a text without its closing quote");
    return {};
  }
  const size_t size = static_cast<size_t>(static_cast<const char*>(quote) - start);
  if (size != 0 && std::memchr(start, '\\', size) != nullptr) return EscapedString(start);
  at_ = start + size + 1;
  return {start, size};
}

std::string_view JsonCursor::EscapedString(const char* start) {
  scratch_.clear();
  at_ = start;
  while (at_ != end_ && *at_ != '"') {
    if (*at_ != '\\') {
      scratch_ += *at_++;
      continue;
    }
    if (++at_ == end_) break;
    const char kind = *at_++;
    constexpr std::string_view kFrom = "\"\\/bfnrt";
    constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    if (const size_t index = kFrom.find(kind); index != std::string_view::npos) {
      scratch_ += kTo[index];
      continue;
    }
    int code = kind == 'u' ? Hex4(at_, end_) : -1;
    if (code < 0) {
      Fail("an escape that JSON does not have");
      return {};
    }
    at_ += 4;
    uint32_t point = static_cast<uint32_t>(code);
    if (point >= 0xD800 && point < 0xDC00 && end_ - at_ >= 6 && at_[0] == '\\' && at_[1] == 'u') {
      const int low = Hex4(at_ + 2, end_);
      if (low >= 0xDC00 && low < 0xE000) {
        point = 0x10000 + ((point - 0xD800) << 10) + (static_cast<uint32_t>(low) - 0xDC00);
        at_ += 6;
      }
    }
    AppendUtf8(point >= 0xD800 && point < 0xE000 ? 0xFFFD : point, scratch_);
  }
  if (at_ == end_) {
    Fail("a text without its closing quote");
    return {};
  }
  ++at_;
  return scratch_;
}

std::string_view JsonCursor::Number() {
  if (Peek() != Type::kNumber) {
    Fail("a number is expected");
    return {};
  }
  const char* start = at_;
  while (at_ != end_ && IsNumberByte(*at_)) ++at_;
  return {start, static_cast<size_t>(at_ - start)};
}

void JsonCursor::TakeWord(std::string_view word) {
  if (static_cast<size_t>(end_ - at_) < word.size() || std::string_view(at_, word.size()) != word) {
    Fail("a value is expected");
    return;
  }
  at_ += word.size();
}

void JsonCursor::Literal() {
  switch (Peek()) {
    case Type::kTrue:
      return TakeWord("true");
    case Type::kFalse:
      return TakeWord("false");
    case Type::kNull:
      return TakeWord("null");
    case Type::kNaN:
      return TakeWord("NaN");
    case Type::kInfinity:
      return TakeWord("Infinity");
    case Type::kMinusInfinity:
      return TakeWord("-Infinity");
    default:
      Fail("a value is expected");
  }
}

void JsonCursor::Skip() {
  // Brackets that are open; recursion would let a text choose the depth of the stack.
  std::string open;
  do {
    std::string_view key;
    if (!open.empty()) {
      const bool more = open.back() == '{' ? NextKey(key) : NextItem();
      if (!ok()) return;
      if (!more) {
        open.pop_back();
        continue;
      }
    }
    switch (Peek()) {
      case Type::kObject:
        EnterObject();
        open += '{';
        break;
      case Type::kArray:
        EnterArray();
        open += '[';
        break;
      case Type::kString:
        String();
        break;
      case Type::kNumber:
        Number();
        break;
      case Type::kEnd:
        return Fail("the text ends where a value is expected");
      default:
        Literal();
    }
    if (open.size() > kMaxDepth) return Fail("nested too deep");
  } while (ok() && !open.empty());
}

void JsonCursor::ExpectEnd() {
  SkipSpace();
  if (at_ != end_) Fail("something follows the value");
}

bool IsUtf8(std::string_view text) {
  const auto* at = reinterpret_cast<const unsigned char*>(text.data());
  const auto* end = at + text.size();
  while (at != end) {
    if (end - at >= 8) {
      uint64_t word;
      std::memcpy(&word, at, 8);
      if ((word & 0x8080808080808080ull) == 0) {
        at += 8;
        continue;
      }
    }
    const unsigned char lead = *at;
    if (lead < 0x80) {
      ++at;
      continue;
    }
    const int more = lead >= 0xC2 && lead < 0xE0   ? 1
                     : lead >= 0xE0 && lead < 0xF0 ? 2
                     : lead >= 0xF0 && lead < 0xF5 ? 3
                                                   : 0;
    if (more == 0 || end - at <= more) return false;
    uint32_t code = lead & (0x3Fu >> more);
    for (int i = 1; i <= more; ++i) {
      if ((at[i] & 0xC0) != 0x80) return false;
      code = code << 6 | (at[i] & 0x3Fu);
    }
    if ((more == 2 && (code < 0x800 || (code >= 0xD800 && code < 0xE000))) ||
        (more == 3 && (code < 0x10000 || code > 0x10FFFF))) {
      return false;
    }
    at += more + 1;
  }
  return true;
}

}  // namespace msprobe::server
