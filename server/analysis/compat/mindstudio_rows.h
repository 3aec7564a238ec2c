#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "server/analysis/compat/mindstudio_table.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

constexpr std::string_view kNotAvailable = "N/A";

enum class Severity : uint8_t { kPass, kWarning, kError };

// A cell of a computed column: a number, or one of the words.
struct Figure {
  bool is_number = false;
  double number = 0;
  std::string_view word;
  static Figure Number(double value) {
    if (std::isnan(value)) return Word("Nan");
    return {true, value, {}};
  }
  static Figure Word(std::string_view word) { return {false, 0, word}; }
};

struct Difference {
  enum class Spelling : uint8_t { kZero, kNumber, kWord } spelling = Spelling::kZero;
  double difference = 0;
  double percent = 0;
  bool by_zero = false;  // golden is 0: the relative error is the word inf
  std::string_view word;
};

struct TableRow {
  int32_t target = kNoRow;
  int32_t golden = kNoRow;
  const ContentResult* content = nullptr;
  std::array<Difference, 4> differences;
  std::array<Figure, 6> figures;
  Severity severity = Severity::kPass;
  std::vector<std::string_view> messages;
};

// The tensors behind the rows of a table. Borrows both tables.
class MindstudioRows {
 public:
  MindstudioRows(const StepTable& target, const StepTable& golden) : target_(target), golden_(golden) {}

  const Row& TargetRow(const TableRow& row) const { return target_.rows[static_cast<size_t>(row.target)]; }
  const Row* GoldenRow(const TableRow& row) const {
    return row.golden == kNoRow ? nullptr : &golden_.rows[static_cast<size_t>(row.golden)];
  }
  static std::string_view DType(const StepTable& table, const Row& row) {
    return row.is_null ? kNotAvailable : table.text(row.dtype);
  }
  static std::string_view Shape(const StepTable& table, const Row& row) {
    return row.is_null ? kNotAvailable : table.text(row.shape);
  }
  static std::string_view Grad(const Row& row) {
    return row.requires_grad == Row::Grad::kAbsent ? kNotAvailable
           : row.requires_grad == Row::Grad::kTrue ? "True"
                                                   : "False";
  }
  static std::string_view Checksum(const Row& row) {
    if (row.is_null) return kNotAvailable;
    // A checksum that Python takes for false counts as missing: the xor of a 0-D tensor may be 0. The table shows the
    // CRC-32 of an empty text for a missing checksum.
    const bool none = row.checksum.empty() || row.checksum == "0" || row.checksum == "0.0" || row.checksum == "-0.0";
    return none ? "00000000" : row.checksum;
  }

 protected:
  const StepTable& target_;
  const StepTable& golden_;
};

// Fills TableRow.figures from TableRow.content: the columns of mode tensor.
void FillFigures(const MindstudioRows& rows, TableRow& row);

// Judges the rows of one entry by mindstudio-probe's rules.
void JudgeMindstudio(const MindstudioTable& table, std::vector<TableRow>& group);

}  // namespace msprobe::server
