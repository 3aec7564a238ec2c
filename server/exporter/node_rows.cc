#include "server/exporter/node_rows.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "absl/strings/match.h"
#include "server/analysis/compat/mindstudio_cells.h"
#include "server/exporter/vis_database.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kNull = "null";

// The place of a key is the control character that stands for it.
enum class Key : uint8_t {
  kType = 2,   // the first of a row
  kOnlyValue,  // the first and last
  kValue,
  kDtype,
  kShape,
  kMax,
  kMin,
  kMean,
  kNorm,
  kRequiresGrad,
  kChecksum,
  kDataName,
  kMaxDiff,
  kMinDiff,
  kMeanDiff,
  kNormDiff,
  kMaxRelative,
  kMinRelative,
  kMeanRelative,
  kNormRelative,
  kGradsAgree,
  kResult,
  kMessages,
  kCosine,
  kEuclidean,
  kMaxAbsolute,
  kThousandth,
  kFiveThousandths,
};
constexpr std::array<std::string_view, 30> kKeys = {
    "",
    "",
    "type",
    "value",
    "value",
    "dtype",
    "shape",
    "Max",
    "Min",
    "Mean",
    "Norm",
    "requires_grad",
    "md5",
    "data_name",
    "Max diff",
    "Min diff",
    "Mean diff",
    "L2norm diff",
    "MaxRelativeErr",
    "MinRelativeErr",
    "MeanRelativeErr",
    "NormRelativeErr",
    "Requires_grad Consistent",
    "Result",
    "Err_message",
    "Cosine",
    "EucDist",
    "MaxAbsErr",
    "One Thousandth Err Ratio",
    "Five Thousandths Err Ratio",
};
static_assert(kKeys.size() == static_cast<size_t>(Key::kFiveThousandths) + 1 && kKeys.size() <= 0x20);

constexpr std::array<Key, 4> kStatistics = {Key::kMax, Key::kMin, Key::kMean, Key::kNorm};
constexpr std::array<Key, 4> kDifferences = {Key::kMaxDiff, Key::kMinDiff, Key::kMeanDiff, Key::kNormDiff};
constexpr std::array<Key, 4> kRelatives = {Key::kMaxRelative, Key::kMinRelative, Key::kMeanRelative,
                                           Key::kNormRelative};
constexpr std::array<Key, 6> kFigures = {Key::kCosine,      Key::kEuclidean,  Key::kMaxAbsolute,
                                         Key::kMaxRelative, Key::kThousandth, Key::kFiveThousandths};
constexpr size_t kDecimals = 6;

// "28.908289" of "28.90828912": digits with a point and more than six after it; all else stays.
void ShortenDecimal(std::string& text, size_t from) {
  const bool percent = text.ends_with('%');
  const size_t end = text.size() - (percent ? 1 : 0);
  const size_t dot = text.find('.', from);
  if (dot == std::string::npos || dot == from || dot - from > 20 || end - dot - 1 <= kDecimals || end - dot - 1 > 20) {
    return;
  }
  for (size_t i = from; i < end; ++i) {
    if (i != dot && (text[i] < '0' || text[i] > '9')) return;
  }
  char digits[64];
  const int size = std::snprintf(digits, sizeof(digits), "%.6f", std::strtod(text.c_str() + from, nullptr));
  text.replace(from, end - from, digits, static_cast<size_t>(size));
}

class Writer {
 public:
  Writer(const StepTable& table, bool checksums, StepTable::Mode mode, const StepTable* golden)
      : table_(table), checksums_(checksums), mode_(mode), golden_(golden) {}

  void Write(std::string_view node, const Entry& entry, const std::vector<TableRow>& compared, NodeRows& out) {
    out.inputs.assign(1, '{');
    out.outputs.assign(1, '{');
    for (uint32_t i = 0; i < entry.rows; ++i) {
      const Row& row = table_.rows[entry.first_row + i];
      const bool output =
          absl::StrContains(AbslView(row.name), ".output.") && !absl::StrContains(AbslView(row.name), ".input.");
      out_ = output ? &out.outputs : &out.inputs;
      if (out_->size() > 1) *out_ += ',';
      PutName(node, row.name);
      if (row.is_null) {
        PutPlain(Key::kOnlyValue, kNull);
      } else {
        row.is_tensor ? Tensor(row) : Scalar(row);
        if (!compared.empty()) Compared(row, compared[i]);
      }
      *out_ += "\"}";
    }
    out.inputs += '}';
    out.outputs += '}';
  }

 private:
  void PutName(std::string_view node, std::string_view row) {
    *out_ += '"';
    if (row.starts_with(node) && IsPlain(node)) {
      *out_ += kOwnName;
      row.remove_prefix(node.size());
    }
    AppendJsonEscaped(row, *out_);
  }

  // Also ends the value before; the first key of a row is kType or kOnlyValue.
  void Begin(Key key) { *out_ += static_cast<char>(key); }

  // A text that may hold anything: the pages of the plugins take no single quotes, and read None as null.
  void Put(Key key, std::string_view value) {
    if (IsPlain(value)) return PutPlain(key, value);
    text_.clear();
    for (size_t i = 0; i < value.size(); ++i) {
      if (value[i] == '\'') continue;
      if (value.substr(i).starts_with("None")) {
        text_ += kNull;
        i += 3;
      } else {
        text_ += value[i];
      }
    }
    ShortenDecimal(text_, 0);
    Begin(key);
    AppendJsonEscaped(text_, *out_);
  }

  static bool IsPlain(std::string_view value) {
    bool plain = value.empty() || value[0] < '0' || value[0] > '9';  // no number to be shortened
    for (const char c : value) {
      plain = plain && c != '\'' && c != '"' && c != '\\' && c != 'N' && static_cast<unsigned char>(c) >= 0x20;
    }
    return plain;
  }

  // A text that needs no escape.
  void PutPlain(Key key, std::string_view value) {
    Begin(key);
    *out_ += value;
  }

  void Put(Key key, const Cell& cell) {
    switch (cell.kind) {
      case Cell::Kind::kNone:
        return PutPlain(key, kNull);
      case Cell::Kind::kBoolean:
        return PutPlain(key, cell.integer != 0 ? "True" : "False");
      case Cell::Kind::kText:
        return Put(key, cell.view());
      case Cell::Kind::kInteger:
      case Cell::Kind::kUnsigned:
        Begin(key);
        AppendWhole(cell, *out_);
        break;
      case Cell::Kind::kReal:
        Begin(key);
        AppendReal(cell.real, *out_);
    }
  }

  void PutGrad(const Row& row) {
    PutPlain(Key::kRequiresGrad, row.requires_grad == Row::Grad::kAbsent ? kNull
                                 : row.requires_grad == Row::Grad::kTrue ? "True"
                                                                         : "False");
  }

  void PutChecksum(const Row& row) {
    if (checksums_) Put(Key::kChecksum, row.checksum.empty() ? kNull : row.checksum);
  }

  void Tensor(const Row& row) {
    Put(Key::kType, row.type);
    Put(Key::kDtype, table_.text(row.dtype));
    PutPlain(Key::kShape, table_.text(row.shape));
    for (size_t i = 0; i < kStatistics.size(); ++i) Put(kStatistics[i], row.statistics[i]);
    PutGrad(row);
    PutChecksum(row);
    Put(Key::kDataName, row.data_name.empty() ? "-1" : row.data_name);
  }

  void Scalar(const Row& row) {
    Put(Key::kType, row.type);
    if (row.said.empty()) {
      Put(Key::kValue, row.statistics[0]);
    } else {
      Put(Key::kValue, row.said);
    }
    Put(Key::kDataName, row.data_name.empty() ? "-1" : row.data_name);
    PutGrad(row);
    for (size_t i = 0; i < kStatistics.size(); ++i) Put(kStatistics[i], row.statistics[i]);
    Put(Key::kDtype, table_.text(row.dtype));
    Put(Key::kShape, table_.text(row.shape));
    PutChecksum(row);
  }

  void Compared(const Row& row, const TableRow& compared) {
    if (mode_ == StepTable::Mode::kStatistics) {
      for (size_t i = 0; i < kDifferences.size(); ++i) PutDifference(i, row, compared);
      for (size_t i = 0; i < kRelatives.size(); ++i) PutRelative(i, compared);
    } else if (mode_ == StepTable::Mode::kTensor) {
      for (size_t i = 0; i < kFigures.size(); ++i) PutFigure(kFigures[i], compared.figures[i]);
    } else {
      PutPlain(Key::kResult, Verdict(compared));
    }
    PutPlain(Key::kGradsAgree, GradsAgree(row, compared) ? "True" : "False");
    if (mode_ != StepTable::Mode::kChecksum) PutPlain(Key::kResult, Verdict(compared));
    PutMessages(compared);
  }

  static std::string_view Verdict(const TableRow& compared) {
    return compared.severity == Severity::kPass      ? "pass"
           : compared.severity == Severity::kWarning ? "warning"
                                                     : "error";
  }

  const Row* GoldenRow(const TableRow& compared) const {
    return compared.golden == kNoRow ? nullptr : &golden_->rows[static_cast<size_t>(compared.golden)];
  }

  bool GradsAgree(const Row& row, const TableRow& compared) const {
    const Row* const golden = GoldenRow(compared);
    return golden != nullptr && golden->requires_grad == row.requires_grad;
  }

  void PutDifference(size_t column, const Row& row, const TableRow& compared) {
    const Difference& difference = compared.differences[column];
    const Row* const golden = GoldenRow(compared);
    if (golden == nullptr) return PutPlain(kDifferences[column], " ");
    if (difference.spelling != Difference::Spelling::kNumber) return PutPlain(kDifferences[column], difference.word);
    Begin(kDifferences[column]);
    const Cell& a = row.statistics[column];
    const Cell& b = golden->statistics[column];
    if (a.kind == Cell::Kind::kInteger && b.kind == Cell::Kind::kInteger) {
      AppendInteger(a.integer - b.integer, *out_);
    } else {
      AppendReal(difference.difference, *out_);
    }
  }

  void PutRelative(size_t column, const TableRow& compared) {
    const Difference& difference = compared.differences[column];
    if (compared.golden == kNoRow) return PutPlain(kRelatives[column], " ");
    if (difference.spelling != Difference::Spelling::kNumber) return PutPlain(kRelatives[column], difference.word);
    if (difference.by_zero) return PutPlain(kRelatives[column], kNotAvailable);
    Begin(kRelatives[column]);
    const size_t start = out_->size();
    AppendReal(difference.percent, *out_);
    *out_ += '%';
    ShortenDecimal(*out_, start);
  }

  void PutFigure(Key key, const Figure& figure) {
    if (!figure.is_number) return PutPlain(key, figure.word);
    Begin(key);
    AppendReal(figure.number, *out_);
  }

  void PutMessages(const TableRow& compared) {
    text_.assign(1, '[');
    for (std::string_view message : compared.messages) {
      if (text_.size() > 1) text_ += ", ";
      text_ += '"';
      text_ += message;
      text_ += '"';
    }
    text_ += ']';
    Begin(Key::kMessages);
    AppendJsonEscaped(text_, *out_);
  }

  const StepTable& table_;
  const bool checksums_;
  const StepTable::Mode mode_;
  const StepTable* const golden_;
  std::string* out_ = nullptr;
  std::string text_;
};

}  // namespace

// SQLite's parser takes some 20 calls inside each other, so it is done in two steps.
std::string UnpackedSql(std::string_view column, std::string_view name) {
  const auto unpack = [](std::string sql, size_t from, size_t to) {
    for (size_t key = from; key < to; ++key) {
      sql = Cat("replace(", sql, ", char(", key, "), '", key <= static_cast<size_t>(Key::kOnlyValue) ? "\":{" : "\",",
                "\"", kKeys[key], "\":\"')");
    }
    return sql;
  };
  constexpr size_t kHalf = kKeys.size() / 2;
  return Cat("(SELECT ", unpack("half", kHalf, kKeys.size()), " FROM (SELECT ",
             unpack(Cat("replace(", column, ", char(1), ", name, ")"), static_cast<size_t>(Key::kType), kHalf),
             " AS half))");
}

void WriteNodeRows(const StepTable& table, std::string_view node, const Entry& entry, bool checksums,
                   const std::vector<TableRow>& compared, StepTable::Mode mode, const StepTable* golden,
                   NodeRows& out) {
  Writer(table, checksums, mode, golden).Write(node, entry, compared, out);
}

}  // namespace msprobe::server
