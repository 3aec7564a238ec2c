#include "server/analysis/compat/mindstudio_cells.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using Kind = Cell::Kind;

std::optional<double> NumberOfText(std::string_view text) {
  text = StdView(absl::StripAsciiWhitespace(AbslView(text)));
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace

void AppendReal(double value, std::string& out) {
  if (std::isnan(value)) {
    out += "nan";
    return;
  }
  if (std::isinf(value)) {
    out += value > 0 ? "inf" : "-inf";
    return;
  }
  char digits[400];
  const double magnitude = std::fabs(value);
  const bool scientific = magnitude != 0 && (magnitude < 1e-4 || magnitude >= 1e16);  // where Python's repr changes
  const auto end = std::to_chars(digits, digits + sizeof(digits), value,
                                 scientific ? std::chars_format::scientific : std::chars_format::fixed)
                       .ptr;
  out.append(digits, static_cast<size_t>(end - digits));
  if (!scientific && value == std::trunc(value)) out += ".0";
}

void AppendInteger(int64_t value, std::string& out) { AppendWhole(Cell::Integer(value), out); }

void AppendWhole(const Cell& cell, std::string& out) {
  char digits[24];
  char* const end = digits + sizeof(digits);
  out.append(digits, (cell.kind == Kind::kUnsigned ? std::to_chars(digits, end, cell.unsigned_integer)
                                                   : std::to_chars(digits, end, cell.integer))
                         .ptr);
}

void AppendQuoted(std::string_view text, std::string& out) {
  bool special = false;
  bool quote = false;
  for (const char c : text) {  // find_first_of would call memchr for each
    special |= c == ',' || c == '\n' || c == '"';
    quote |= c == '"';
  }
  if (!special) {
    out += text;
    return;
  }
  out += '"';
  if (!quote) {
    out += text;
  } else {
    for (const char c : text) {
      if (c == '"') out += '"';
      out += c;
    }
  }
  out += '"';
}

double Rounded(double value, const char* format) {
  if (!std::isfinite(value)) return value;
  char digits[400];
  std::snprintf(digits, sizeof(digits), format, value);
  return std::strtod(digits, nullptr);
}

ValueKind KindOf(const Cell& cell) {
  switch (cell.kind) {
    case Kind::kReal:
      return std::isnan(cell.real)      ? ValueKind::kNaN
             : std::isfinite(cell.real) ? ValueKind::kNumber
             : cell.real > 0            ? ValueKind::kInfinity
                                        : ValueKind::kMinusInfinity;
    case Kind::kInteger:
    case Kind::kUnsigned:
      return ValueKind::kNumber;
    case Kind::kBoolean:
    case Kind::kNone:
      return ValueKind::kOther;
    case Kind::kText:
      break;
  }
  if (cell.view() == "N/A") return ValueKind::kAbsent;
  const std::string lower = absl::AsciiStrToLower(AbslView(cell.view()));
  if (lower == "nan") return ValueKind::kNaN;
  if (lower == "inf") return ValueKind::kInfinity;
  if (lower == "-inf") return ValueKind::kMinusInfinity;
  if (NumberOfText(cell.view())) return ValueKind::kNumber;
  for (const char* device : {"npu", "cpu", "cuda"}) {
    if (absl::StrContains(lower, device)) return ValueKind::kDevice;
  }
  return ValueKind::kOther;
}

double NumberOf(const Cell& cell) {
  return cell.kind == Kind::kText ? NumberOfText(cell.view()).value_or(0) : cell.number();
}

bool IsNonFinite(const Cell& cell) {
  const ValueKind kind = KindOf(cell);
  return kind == ValueKind::kNaN || kind == ValueKind::kInfinity || kind == ValueKind::kMinusInfinity;
}

bool SameScalar(const Cell& a, const Cell& b) {
  const bool numeric_a = a.kind != Kind::kText && a.kind != Kind::kNone;
  const bool numeric_b = b.kind != Kind::kText && b.kind != Kind::kNone;
  if (numeric_a != numeric_b) return false;
  if (numeric_a) return a.number() == b.number() || (std::isnan(a.number()) && std::isnan(b.number()));
  if (a.kind != b.kind) return false;
  return a.kind == Kind::kNone || a.view() == b.view();
}

}  // namespace msprobe::server
