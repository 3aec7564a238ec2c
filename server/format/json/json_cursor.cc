#include "server/format/json/json_cursor.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

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

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

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

// The first quote, backslash or control character, or the end. Eight bytes at a time.
const char* EndOfPlain(const char* at, const char* end) {
  static_assert(std::endian::native == std::endian::little);
  constexpr uint64_t kEach = 0x0101010101010101;
  constexpr uint64_t kHigh = kEach * 0x80;
  for (; end - at >= 8; at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    const uint64_t quote = word ^ kEach * '"';
    const uint64_t backslash = word ^ kEach * '\\';
    // A borrow marks bytes behind the first hit alone.
    const uint64_t hits =
        (((quote - kEach) & ~quote) | ((backslash - kEach) & ~backslash) | ((word - kEach * 0x20) & ~word)) & kHigh;
    if (hits != 0) return at + (std::countr_zero(hits) >> 3);
  }
  while (at != end && *at != '"' && *at != '\\' && static_cast<unsigned char>(*at) >= 0x20) ++at;
  return at;
}

bool IsBeyondDouble(std::string_view digits) {
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec != std::errc::result_out_of_range) return false;
  // Too large or too small: strtod tells which.
  return std::isinf(std::strtod(std::string(digits).c_str(), nullptr));
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

void JsonCursor::Fail(std::string_view what, const char* where) {
  if (!ok()) return;
  error_ = what;
  error_offset_ = static_cast<size_t>(where - begin_);
  at_ = end_;
}

JsonType JsonCursor::Peek() {
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
      if (IsDigit(*at_)) return Type::kNumber;
      Fail("a value is expected");
      return Type::kEnd;
  }
}

bool JsonCursor::Enter() {
  if (depth_ > limits_.max_depth) {
    Fail(Cat("nested over ", limits_.max_depth, " deep"));
    return false;
  }
  ++depth_;
  ++at_;
  first_ = true;
  return true;
}

bool JsonCursor::EnterObject() {
  if (Peek() == Type::kObject) return Enter();
  Fail("an object is expected");
  return false;
}

bool JsonCursor::EnterArray() {
  if (Peek() == Type::kArray) return Enter();
  Fail("a list is expected");
  return false;
}

bool JsonCursor::Separator(char close) {
  SkipSpace();
  if (at_ == end_) {
    Fail("the text ends inside an object or a list");
    return false;
  }
  if (*at_ == close) {
    ++at_;
    --depth_;
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
  const char* const start = ++at_;
  at_ = EndOfPlain(start, end_);
  if (at_ != end_ && *at_ == '"') return {start, static_cast<size_t>(at_++ - start)};
  return EscapedString(start);
}

std::string_view JsonCursor::EscapedString(const char* start) {
  scratch_.assign(start, at_);
  while (at_ != end_ && *at_ != '"') {
    if (*at_ != '\\') {
      Fail("a control character in a text");
      return {};
    }
    if (++at_ == end_) break;
    const char kind = *at_++;
    constexpr std::string_view kFrom = "\"\\/bfnrt";
    constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    if (const size_t index = kFrom.find(kind); index != std::string_view::npos) {
      scratch_ += kTo[index];
    } else if (kind == 'u') {
      AppendUtf8(EscapedPoint(), scratch_);
    } else {
      Fail("an escape that JSON does not have", at_ - 2);
    }
    const char* const plain = at_;
    at_ = EndOfPlain(plain, end_);
    scratch_.append(plain, at_);
  }
  if (at_ == end_) {
    Fail("a text without its closing quote");
    return {};
  }
  ++at_;
  return scratch_;
}

// Of the digits behind \u, and of a second escape where the first is half of a pair.
uint32_t JsonCursor::EscapedPoint() {
  const char* const escape = at_ - 2;
  const int code = Hex4(at_, end_);
  if (code < 0) {
    Fail("an escape that JSON does not have", escape);
    return 0;
  }
  at_ += 4;
  const auto point = static_cast<uint32_t>(code);
  if (point < 0xD800 || point >= 0xE000) return point;
  if (point < 0xDC00 && end_ - at_ >= 6 && at_[0] == '\\' && at_[1] == 'u') {
    const int low = Hex4(at_ + 2, end_);
    if (low >= 0xDC00 && low < 0xE000) {
      at_ += 6;
      return 0x10000 + ((point - 0xD800) << 10) + (static_cast<uint32_t>(low) - 0xDC00);
    }
  }
  if (limits_.exact) Fail("half of a surrogate pair", escape);
  return 0xFFFD;
}

std::string_view JsonCursor::Number() {
  if (Peek() == Type::kNumber) return Digits();
  Fail("a number is expected");
  return {};
}

std::string_view JsonCursor::Digits() {
  const char* const start = at_;
  const char* at = start;
  const auto digits = [&] {
    const char* const first = at;
    while (at != end_ && IsDigit(*at)) ++at;
    return at != first;
  };
  if (*at == '-') ++at;
  const bool zero = at != end_ && *at == '0';
  const char* const whole = at;
  bool good = digits() && (!zero || at == whole + 1);
  if (at != end_ && *at == '.') {
    ++at;
    good = digits() && good;
  }
  const bool exponent = at != end_ && (*at == 'e' || *at == 'E');
  if (exponent) {
    ++at;
    if (at != end_ && (*at == '+' || *at == '-')) ++at;
    good = digits() && good;
  }
  const std::string_view number(start, static_cast<size_t>(at - start));
  if (!good) {
    Fail("a number is expected");
    return {};
  }
  constexpr size_t kSurelyFits = 300;  // digits without an exponent
  if (limits_.exact && (exponent || number.size() > kSurelyFits) && IsBeyondDouble(number)) {
    Fail("a number beyond the largest double");
    return {};
  }
  at_ = at;
  return number;
}

void JsonCursor::TakeWord(std::string_view word) {
  if (static_cast<size_t>(end_ - at_) < word.size() || std::string_view(at_, word.size()) != word) {
    Fail("a value is expected");
    return;
  }
  at_ += word.size();
}

void JsonCursor::Skip(Type type) {
  switch (type) {
    case Type::kObject:
    case Type::kArray:
      return SkipNested(type);
    case Type::kString:
      String();
      return;
    case Type::kNumber:
      Digits();
      return;
    case Type::kEnd:
      return Fail("the text ends where a value is expected");
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
  }
}

void JsonCursor::SkipNested(Type outermost) {
  // Brackets that are open; recursion would let a text choose the depth of the stack.
  std::string open;
  const auto enter = [&](Type type) {
    if (type == Type::kObject ? EnterObject() : EnterArray()) open += type == Type::kObject ? '{' : '[';
  };
  enter(outermost);
  while (ok() && !open.empty()) {
    std::string_view key;
    if (!(open.back() == '{' ? NextKey(key) : NextItem())) {
      open.pop_back();
      continue;
    }
    if (const Type type = Peek(); type == Type::kObject || type == Type::kArray) {
      enter(type);
    } else {
      Skip(type);
    }
  }
}

JsonText JsonCursor::Take() {
  JsonText value;
  value.type = Peek();
  const char* const start = at_;
  Skip(value.type);
  if (!ok()) return {};
  value.text = {start, static_cast<size_t>(at_ - start)};
  return value;
}

void JsonCursor::ExpectEnd() {
  SkipSpace();
  if (at_ != end_) Fail("something follows the value");
}

size_t Utf8Prefix(std::string_view text) {
  const auto* at = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const begin = at;
  const auto* const end = at + text.size();
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
    const auto here = static_cast<size_t>(at - begin);
    if (more == 0 || end - at <= more) return here;
    uint32_t code = lead & (0x3Fu >> more);
    for (int i = 1; i <= more; ++i) {
      if ((at[i] & 0xC0) != 0x80) return here;
      code = code << 6 | (at[i] & 0x3Fu);
    }
    if ((more == 2 && (code < 0x800 || (code >= 0xD800 && code < 0xE000))) ||
        (more == 3 && (code < 0x10000 || code > 0x10FFFF))) {
      return here;
    }
    at += more + 1;
  }
  return text.size();
}

}  // namespace msprobe::server
