#pragma once

#include <cstdint>
#include <string_view>

namespace msprobe::server {

// One value of a statistic as a dump gives it: what comparing needs is the number, what mindstudio-probe's table needs
// is its kind, too (31 and 31.0 are spelled differently).
struct Cell {
  enum class Kind : uint8_t { kNone, kReal, kInteger, kUnsigned, kBoolean, kText };

  Kind kind = Kind::kNone;
  uint32_t text_size = 0;  // here, so that a cell takes 16 bytes
  union {
    double real;
    int64_t integer;            // kBoolean: 0 or 1
    uint64_t unsigned_integer;  // beyond int64_t
    const char* text;
  };

  Cell() : integer(0) {}
  static Cell Real(double value) {
    Cell cell;
    cell.kind = Kind::kReal;
    cell.real = value;
    return cell;
  }
  static Cell Integer(int64_t value) {
    Cell cell;
    cell.kind = Kind::kInteger;
    cell.integer = value;
    return cell;
  }
  static Cell Unsigned(uint64_t value) {
    Cell cell = Integer(static_cast<int64_t>(value));
    if (cell.integer < 0) cell.kind = Kind::kUnsigned;
    return cell;
  }
  static Cell Boolean(bool value) {
    Cell cell;
    cell.kind = Kind::kBoolean;
    cell.integer = value ? 1 : 0;
    return cell;
  }
  static Cell Text(std::string_view value) {
    Cell cell;
    cell.kind = Kind::kText;
    cell.text = value.data();
    cell.text_size = static_cast<uint32_t>(value.size());
    return cell;
  }

  std::string_view view() const { return {text, text_size}; }
  bool is_whole() const { return kind == Kind::kInteger || kind == Kind::kUnsigned; }
  bool is_number() const { return kind == Kind::kReal || is_whole(); }
  // Where is_whole().
  __int128 whole() const { return kind == Kind::kUnsigned ? static_cast<__int128>(unsigned_integer) : integer; }
  // Of a number or a boolean: the nearest double.
  double number() const {
    if (kind == Kind::kReal) return real;
    return kind == Kind::kUnsigned ? static_cast<double>(unsigned_integer) : static_cast<double>(integer);
  }
};

// Of numbers and booleans. Two integers are compared digit by digit. NaN is less than nothing, and equals nothing.
inline bool IsLess(const Cell& a, const Cell& b) {
  return a.is_whole() && b.is_whole() ? a.whole() < b.whole() : a.number() < b.number();
}
inline bool IsSame(const Cell& a, const Cell& b) {
  return a.is_whole() && b.is_whole() ? a.whole() == b.whole() : a.number() == b.number();
}

}  // namespace msprobe::server
