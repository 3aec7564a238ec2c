#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// How mindstudio-probe spells values in its tables, and what it takes them for.

// As Python's repr: "1.0", "1e-05", "nan", "inf".
void AppendReal(double value, std::string& out);
void AppendInteger(int64_t value, std::string& out);
void AppendWhole(const Cell& integer, std::string& out);
// csv's minimal quoting.
void AppendQuoted(std::string_view text, std::string& out);

// As a number printed with so many decimals is read again. Twelve are what most figures have.
double Rounded(double value, const char* format = "%.12f");

// Kinds of values, as they decide about differences.
enum class ValueKind { kNumber, kNaN, kInfinity, kMinusInfinity, kDevice, kAbsent, kOther };
ValueKind KindOf(const Cell& cell);
// Of one of kind kNumber.
double NumberOf(const Cell& cell);
bool IsNonFinite(const Cell& cell);
// Python's ==.
bool SameScalar(const Cell& a, const Cell& b);

}  // namespace msprobe::server
