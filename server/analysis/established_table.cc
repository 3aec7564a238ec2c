#include "server/analysis/established_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "server/analysis/dump_table.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using Kind = Cell::Kind;

constexpr size_t kChunk = 1 << 20;
constexpr std::string_view kNotAvailable = "N/A";
constexpr std::string_view kCommon =
    "NPU Name,Bench Name,NPU Dtype,Bench Dtype,NPU Tensor Shape,Bench Tensor Shape,NPU Requires_grad,"
    "Bench Requires_grad,";
constexpr std::string_view kStatisticsColumns =
    "NPU max,NPU min,NPU mean,NPU l2norm,Bench max,Bench min,Bench mean,Bench l2norm,";
constexpr std::string_view kTail = "Requires_grad Consistent,Result,Err_message";

// --- spelling ---------------------------------------------------------------------------------------------------

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
  const std::string_view text(digits, static_cast<size_t>(end - digits));
  out += text;
  if (!scientific && text.find('.') == std::string_view::npos) out += ".0";
}

void AppendInteger(int64_t value, std::string& out) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

// csv's minimal quoting.
void AppendQuoted(std::string_view text, std::string& out) {
  if (text.find_first_of(",\"\n") == std::string_view::npos) {
    out += text;
    return;
  }
  out += '"';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

// Twelve decimals, then the shortest digits.
double Rounded(double value, const char* format = "%.12f") {
  if (!std::isfinite(value)) return value;
  char digits[400];
  std::snprintf(digits, sizeof(digits), format, value);
  return std::strtod(digits, nullptr);
}

// --- kinds of values, as they decide about differences ------------------------------------------------------------

enum class ValueKind { kNumber, kNaN, kInfinity, kMinusInfinity, kDevice, kAbsent, kOther };

std::optional<double> NumberOfText(std::string_view text) {
  text = StdView(absl::StripAsciiWhitespace(AbslView(text)));
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

ValueKind KindOf(const Cell& cell) {
  switch (cell.kind) {
    case Kind::kReal:
      return std::isnan(cell.real)      ? ValueKind::kNaN
             : std::isfinite(cell.real) ? ValueKind::kNumber
             : cell.real > 0            ? ValueKind::kInfinity
                                        : ValueKind::kMinusInfinity;
    case Kind::kInteger:
      return ValueKind::kNumber;
    case Kind::kBoolean:
    case Kind::kNone:
      return ValueKind::kOther;
    case Kind::kText:
      break;
  }
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

bool IsNonFinite(const Cell* cell) {
  if (cell == nullptr) return false;
  const ValueKind kind = KindOf(*cell);
  return kind == ValueKind::kNaN || kind == ValueKind::kInfinity || kind == ValueKind::kMinusInfinity;
}

// Python's ==.
bool SameScalar(const Cell* a, const Cell* b) {
  if (a == nullptr || b == nullptr) return a == b;
  const bool numeric_a = a->kind != Kind::kText && a->kind != Kind::kNone;
  const bool numeric_b = b->kind != Kind::kText && b->kind != Kind::kNone;
  if (numeric_a != numeric_b) return false;
  if (numeric_a) return a->number() == b->number() || (std::isnan(a->number()) && std::isnan(b->number()));
  if (a->kind != b->kind) return false;
  return a->kind == Kind::kNone || a->view() == b->view();
}

// --- rows ---------------------------------------------------------------------------------------------------------

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

class Writer {
 public:
  Writer(const EstablishedTable& table, absl::FunctionRef<absl::Status(std::string_view)> write)
      : table_(table), target_(*table.target), golden_(*table.golden), mode_(table.mode), write_(write) {}

  absl::StatusOr<VerdictCounts> Write() {
    SurveyColumns();
    Header();
    const auto& pairs = table_.match->pairs;
    std::vector<TableRow> group;
    size_t entry = 0;
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto row = static_cast<uint32_t>(pairs[i].first);
      if (row >= target_.entries[entry].first_row + target_.entries[entry].rows) {
        if (absl::Status status = Flush(target_.entries[entry], group); !status.ok()) return status;
        while (row >= target_.entries[entry].first_row + target_.entries[entry].rows) ++entry;
      }
      TableRow added;
      added.target = pairs[i].first;
      added.golden = Partner(i);
      if (table_.contents != nullptr) added.content = &(*table_.contents)[i];
      group.push_back(std::move(added));
    }
    if (!group.empty()) {
      if (absl::Status status = Flush(target_.entries[entry], group); !status.ok()) return status;
    }
    if (!out_.empty()) {
      if (absl::Status status = write_(out_); !status.ok()) return status;
    }
    return counts_;
  }

 private:
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
    // What Python takes for false (the xor of a 0-D tensor that is 0) counts as none, and none as that of no text.
    const bool none = row.checksum.empty() || row.checksum == "0" || row.checksum == "0.0" || row.checksum == "-0.0";
    return none ? "00000000" : row.checksum;
  }

  int32_t Partner(size_t pair) const {
    const auto [target, golden] = table_.match->pairs[pair];
    if (golden == kNoRow || !table_.check_dtypes) return golden;
    const Row& a = target_.rows[static_cast<size_t>(target)];
    const Row& b = golden_.rows[static_cast<size_t>(golden)];
    const auto match = table_.across_frameworks ? DTypesMatchAcrossFrameworks : DTypesMatch;
    return match(DType(target_, a), DType(golden_, b)) ? golden : kNoRow;
  }

  // A column of integers and floats without any word becomes one of floats in the established tool's tables, and 31 is
  // spelled 31.0.
  void SurveyColumns() {
    for (int side = 0; side < 2; ++side) {
      bool has_word[4] = {};
      bool has_real[4] = {};
      bool has_integer[4] = {};
      for (size_t i = 0; i < table_.match->pairs.size(); ++i) {
        const int32_t number = side == 0 ? table_.match->pairs[i].first : Partner(i);
        if (number == kNoRow) {
          std::fill(has_word, has_word + 4, true);
          break;
        }
        const Row& row = (side == 0 ? target_ : golden_).rows[static_cast<size_t>(number)];
        for (int column = 0; column < 4; ++column) {
          const Cell& cell = row.statistics[static_cast<size_t>(column)];
          if (!cell.is_number() || (cell.kind == Kind::kReal && std::isnan(cell.real))) {
            has_word[column] = true;
          } else if (cell.kind == Kind::kReal) {
            has_real[column] = true;
          } else {
            has_integer[column] = true;
          }
        }
        if (has_word[0] && has_word[1] && has_word[2] && has_word[3]) break;
      }
      const bool any_word = has_word[0] || has_word[1] || has_word[2] || has_word[3];
      const bool any_real = has_real[0] || has_real[1] || has_real[2] || has_real[3];
      for (int column = 0; column < 4; ++column) {
        integers_as_reals_[side][column] = has_word[column] ? false : has_real[column] || (!any_word && any_real);
        all_integers_[side][column] = !has_word[column] && has_integer[column] && !integers_as_reals_[side][column];
      }
    }
  }

  void Header() {
    out_ += kCommon;
    switch (mode_) {
      case StepTable::Mode::kStatistics:
        out_ +=
            "Max diff,Min diff,Mean diff,L2norm diff,MaxRelativeErr,MinRelativeErr,MeanRelativeErr,NormRelativeErr,";
        out_ += kStatisticsColumns;
        break;
      case StepTable::Mode::kTensor:
        out_ += "Cosine,EucDist,MaxAbsErr,MaxRelativeErr,One Thousandth Err Ratio,Five Thousandths Err Ratio,";
        out_ += kStatisticsColumns;
        break;
      case StepTable::Mode::kChecksum:
        out_ += "NPU MD5,BENCH MD5,";
    }
    out_ += kTail;
    if (target_.has_stacks) out_ += ",NPU_Stack_Info";
    if (mode_ == StepTable::Mode::kTensor) out_ += ",Data_name";
    out_ += '\n';
  }

  absl::Status Flush(const Entry& entry, std::vector<TableRow>& group) {
    for (TableRow& row : group) {
      if (mode_ == StepTable::Mode::kStatistics) Differences(row);
      if (mode_ == StepTable::Mode::kTensor) Figures(row);
    }
    Judge(group);
    for (const TableRow& row : group) {
      ++counts_.rows;
      counts_.warnings += row.severity == Severity::kWarning;
      counts_.errors += row.severity == Severity::kError;
      counts_.target_only += row.golden == kNoRow;
      Put(entry, row);
    }
    group.clear();
    if (out_.size() < kChunk) return absl::OkStatus();
    absl::Status status = write_(out_);
    out_.clear();
    return status;
  }

  // --- statistics
  void Differences(TableRow& row) {
    const Row* const golden = GoldenRow(row);
    for (size_t i = 0; i < 4; ++i) {
      row.differences[i] = golden == nullptr ? Difference{Difference::Spelling::kWord, 0, 0, false, kNotAvailable}
                                             : DifferenceOf(TargetRow(row).statistics[i], golden->statistics[i], i);
    }
  }

  bool SameSpelling(const Cell& a, const Cell& b, size_t column) const {
    const bool real_a = a.kind == Kind::kReal || (a.kind == Kind::kInteger && integers_as_reals_[0][column]);
    const bool real_b = b.kind == Kind::kReal || (b.kind == Kind::kInteger && integers_as_reals_[1][column]);
    if (real_a && real_b) {
      const double x = a.number();
      const double y = b.number();
      return (x == y && std::signbit(x) == std::signbit(y)) || (std::isnan(x) && std::isnan(y));
    }
    if (a.kind != b.kind) {
      if (a.kind != Kind::kText && b.kind != Kind::kText) return false;
      return Spelled(a, 0, column) == Spelled(b, 1, column);
    }
    if (a.kind == Kind::kText) return Spelled(a, 0, column) == Spelled(b, 1, column);
    return !real_a && !real_b && a.integer == b.integer;
  }

  Difference DifferenceOf(const Cell& a, const Cell& b, size_t column) const {
    if (SameSpelling(a, b, column)) return {};
    const auto word = [](std::string_view text) { return Difference{Difference::Spelling::kWord, 0, 0, false, text}; };
    const ValueKind x = KindOf(a);
    const ValueKind y = KindOf(b);
    if (x == ValueKind::kNumber && y == ValueKind::kNumber) {
      const double n = NumberOf(a);
      const double g = NumberOf(b);
      Difference found;
      found.spelling = Difference::Spelling::kNumber;
      found.difference = n - g;
      found.by_zero = g == 0;
      if (!found.by_zero) found.percent = std::fabs(found.difference / g * 100);
      return found;
    }
    const auto numeric = [](ValueKind kind) {
      return kind == ValueKind::kNumber || kind == ValueKind::kNaN || kind == ValueKind::kInfinity ||
             kind == ValueKind::kMinusInfinity;
    };
    if (numeric(x) && numeric(y)) {
      if (x == ValueKind::kNaN || y == ValueKind::kNaN) return word("Nan");
      if (x == ValueKind::kInfinity) return word("inf");
      if (x == ValueKind::kMinusInfinity) return word("-inf");
      return word(y == ValueKind::kInfinity ? "-inf" : "inf");
    }
    if (x == ValueKind::kDevice && y == ValueKind::kDevice) return word(kNotAvailable);
    return word("Diff");
  }

  // --- tensors
  void Figures(TableRow& row) {
    const Row* const golden = GoldenRow(row);
    const auto all = [&row](std::string_view text) { row.figures.fill(Figure::Word(text)); };
    if (row.content == nullptr || golden == nullptr) return all("unsupported");
    const ContentResult& content = *row.content;
    if (content.kind == ContentResult::Kind::kNoFile || content.kind == ContentResult::Kind::kUnreadable ||
        content.kind == ContentResult::Kind::kUnsupported || content.empty) {
      return all("unsupported");
    }
    if (!content.squeezed_shapes_equal) return all("shape unmatched");
    const ElementwiseMetrics::Established& numbers = content.metrics.established;
    if (content.squeezed_scalar) {
      all("unsupported");
      row.figures[2] = Figure::Number(Rounded(ScalarDifference(row, *golden)));
      const double relative = ScalarRelative(content);
      row.figures[3] = Figure::Number(Rounded(relative));
      return;
    }
    if (numbers.masks_differ) return all(kNotAvailable);
    constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
    const double a = std::sqrt(numbers.target_squares);
    const double b = std::sqrt(numbers.golden_squares);
    if (a <= kEpsilon && b <= kEpsilon) {
      row.figures[0] = Figure::Number(1.0);
    } else if (a <= kEpsilon || b <= kEpsilon) {
      row.figures[0] = Figure::Word("Nan");
    } else {
      double cosine = Rounded(numbers.cosine_dot / (a * b));
      if (cosine > 0.9999) cosine = Rounded(cosine, "%.6f");
      row.figures[0] = Figure::Number(cosine);
    }
    const auto elements = static_cast<double>(content.metrics.elements);
    row.figures[1] = Figure::Number(std::sqrt(numbers.distance_squares));
    row.figures[2] = Figure::Number(Rounded(numbers.max_abs));
    row.figures[3] = Figure::Number(Rounded(numbers.max_rel));
    row.figures[4] = Figure::Number(Rounded(static_cast<double>(numbers.under_thousandth) / elements));
    row.figures[5] = Figure::Number(Rounded(static_cast<double>(numbers.under_five_thousandths) / elements));
  }

  // Of tensors of one element, in the arithmetic of their dtype.
  double ScalarDifference(const TableRow& row, const Row& golden) const {
    const ContentResult& content = *row.content;
    const auto is_single = [](std::string_view dtype) { return dtype == "torch.float32" || dtype == "torch.bfloat16"; };
    if (is_single(DType(target_, TargetRow(row))) && is_single(DType(golden_, golden))) {
      return std::fabs(static_cast<float>(content.scalar_target) - static_cast<float>(content.scalar_golden));
    }
    return std::fabs(content.scalar_target - content.scalar_golden);
  }

  static double ScalarRelative(const ContentResult& content) {
    if (std::isfinite(content.scalar_target) && std::isfinite(content.scalar_golden)) {
      return content.metrics.established.max_rel;
    }
    return std::fabs((content.scalar_target - content.scalar_golden) / content.scalar_golden);
  }

  // --- verdicts
  static void Mark(TableRow& row, Severity severity, std::string_view message) {
    row.severity = std::max(row.severity, severity);
    row.messages.push_back(message);
  }

  // As a ratio where it is a percentage; nothing for words.
  static std::optional<double> RatioOf(const Difference& difference) {
    if (difference.spelling != Difference::Spelling::kNumber || difference.by_zero) return std::nullopt;
    return difference.percent / 100;
  }

  static double Largest(const std::vector<TableRow*>& rows) {
    double largest = 0;
    for (const TableRow* row : rows) largest = std::max(largest, RatioOf(row->differences[3]).value_or(0));
    return largest;
  }

  static double Smallest(const std::vector<TableRow*>& rows, size_t figure) {
    double smallest = 1;
    for (const TableRow* row : rows) {
      if (row->figures[figure].is_number) smallest = std::min(smallest, row->figures[figure].number);
    }
    return smallest;
  }

  void Judge(std::vector<TableRow>& group) {
    std::vector<TableRow*> inputs;
    std::vector<TableRow*> outputs;
    for (TableRow& row : group) {
      (absl::StrContains(AbslView(TargetRow(row).name), ".output.") ? outputs : inputs).push_back(&row);
    }
    std::vector<TableRow*> all = inputs;
    all.insert(all.end(), outputs.begin(), outputs.end());
    bool with_inputs = true;
    if (!inputs.empty()) {
      const std::string_view name = TargetRow(*inputs.front()).name;
      const size_t begin = name.find('.');
      const std::string_view api =
          begin == std::string_view::npos ? "" : name.substr(begin + 1, name.find('.', begin + 1) - begin - 1);
      for (std::string_view uninitialised : {"empty", "empty_like", "numpy", "to", "__setitem__", "empty_with_format",
                                             "new_empty_strided", "new_empty", "empty_strided"}) {
        if (api == uninitialised) return;
      }
      for (std::string_view collective :
           {"_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"}) {
        if (api == collective) {
          with_inputs = false;
          all = outputs;
        }
      }
    }
    if (mode_ == StepTable::Mode::kChecksum) {
      for (TableRow* row : all) JudgeChecksum(*row);
      return;
    }
    for (TableRow* row : all) {
      const Row* const golden = GoldenRow(*row);
      const Row& target = TargetRow(*row);
      if (golden != nullptr && (IsNonFinite(&golden->statistics[0]) || IsNonFinite(&golden->statistics[1]))) continue;
      if (IsNonFinite(&target.statistics[0]) || IsNonFinite(&target.statistics[1])) {
        Mark(*row, Severity::kError, "error: There is nan/inf/-inf in the maximum or minimum value of NPU.");
      }
    }
    if (with_inputs && mode_ == StepTable::Mode::kStatistics) JudgeNormOfOutputs(inputs, outputs);
    if (with_inputs && mode_ == StepTable::Mode::kTensor && !outputs.empty() && Smallest(inputs, 4) > 0.9 &&
        Smallest(outputs, 4) < 0.1) {
      Mark(*outputs.front(), Severity::kError,
           "error: The input/parameters of One Thousandth Err Ratio > 0.9 while the output < 0.6.");
    }
    for (TableRow* row : all) {
      const Row* const golden = GoldenRow(*row);
      if (golden != nullptr && Grad(TargetRow(*row)) != Grad(*golden)) {
        Mark(*row, Severity::kError, "error: The Required_Grad of NPU and Bench are inconsistent");
      }
    }
    if (with_inputs) {
      for (TableRow* row : inputs) JudgeScalar(*row);
    }
    for (TableRow* row : all) {
      const Row* const golden = GoldenRow(*row);
      if (golden == nullptr || absl::StrContains(AbslView(golden->name), "qkv") ||
          absl::StrContains(AbslView(golden->name), "gate_up")) {
        continue;
      }
      if (DType(target_, TargetRow(*row)) != DType(golden_, *golden)) {
        Mark(*row, Severity::kError, "error: The dtype of NPU and Bench are inconsistent.");
      }
    }
    for (TableRow* row : all) {
      const Row* const golden = GoldenRow(*row);
      if (golden != nullptr && Shape(target_, TargetRow(*row)) != Shape(golden_, *golden)) {
        Mark(*row, Severity::kError, "error: The shape of NPU and Bench are inconsistent.");
      }
    }
    if (!with_inputs || outputs.empty()) return;
    if (mode_ == StepTable::Mode::kStatistics) {
      const double in = Largest(inputs);
      const double out = Largest(outputs);
      if (in == 0 ? out > 0.1 : out / in > 10) {
        Mark(*outputs.front(), Severity::kWarning,
             "warning: The norm relative error of output is 10 times that of input.");
      }
    } else {
      const double in = Smallest(inputs, 0);
      if (in > 0.9 && in - Smallest(outputs, 0) > 0.1) {
        Mark(*outputs.front(), Severity::kWarning,
             "warning: The input/parameters of Cosine > 0.9, and input/parameters - output > 0.1");
      }
    }
  }

  void JudgeNormOfOutputs(const std::vector<TableRow*>& inputs, const std::vector<TableRow*>& outputs) {
    if (!(Largest(inputs) < 0.1)) return;
    for (TableRow* row : outputs) {
      const Difference& difference = row->differences[3];
      bool large = false;
      if (difference.spelling == Difference::Spelling::kNumber) {
        large = difference.by_zero || difference.percent / 100 > 0.5;
      } else if (difference.spelling == Difference::Spelling::kWord) {
        large = difference.word == "inf" || difference.word == "-inf";
      }
      if (large) Mark(*row, Severity::kError, "error: The NormRelativeErr of output is greater than 0.5.");
    }
  }

  void JudgeScalar(TableRow& row) {
    const Row* const golden = GoldenRow(row);
    const Row& target = TargetRow(row);
    if (golden == nullptr || !absl::StrContains(AbslView(DType(target_, target)), "class") ||
        !absl::StrContains(AbslView(DType(golden_, *golden)), "class") || Shape(target_, target) != "[]") {
      return;
    }
    if (!SameScalar(&target.statistics[0], &golden->statistics[0])) {
      Mark(row, Severity::kError, "error: The scalar parameters of NPU and Bench are inconsistent.");
    }
  }

  void JudgeChecksum(TableRow& row) {
    const Row* const golden = GoldenRow(row);
    const std::string_view a = Checksum(TargetRow(row));
    const std::string_view b = golden == nullptr ? kNotAvailable : Checksum(*golden);
    if (a == b) return;
    const auto none = [](std::string_view text) { return text.empty() || text == kNotAvailable || text == "Nan"; };
    if (none(a) || none(b)) {
      Mark(row, Severity::kWarning, "warning: The parameter of NPU does not match the bench.");
    } else {
      Mark(row, Severity::kError, "error: The CRC-32 value of NPU differs from that of the bench.");
    }
  }

  // --- writing
  std::string Spelled(const Cell& cell, int side, size_t column) const {
    std::string text;
    AppendCell(cell, side, column, text);
    return text;
  }

  void AppendCell(const Cell& cell, int side, size_t column, std::string& out) const {
    switch (cell.kind) {
      case Kind::kNone:
        out += "None";
        return;
      case Kind::kBoolean:
        out += cell.integer != 0 ? "True" : "False";
        return;
      case Kind::kInteger:
        if (integers_as_reals_[side][column]) {
          AppendReal(static_cast<double>(cell.integer), out);
        } else {
          AppendInteger(cell.integer, out);
        }
        return;
      case Kind::kReal:
        if (std::isnan(cell.real)) {
          out += "Nan";
        } else {
          if (std::isinf(cell.real)) out += ' ';  // a spreadsheet would take inf for a name
          AppendReal(cell.real, out);
        }
        return;
      case Kind::kText:
        AppendQuoted(absl::EqualsIgnoreCase(AbslView(cell.view()), "nan") ? "Nan" : cell.view(), out);
    }
  }

  void PutDifference(const Difference& difference, size_t column) {
    switch (difference.spelling) {
      case Difference::Spelling::kZero:
        out_ += "0";
        break;
      case Difference::Spelling::kWord:
        out_ += difference.word;
        break;
      case Difference::Spelling::kNumber:
        if (all_integers_[0][column] && all_integers_[1][column]) {
          AppendInteger(static_cast<int64_t>(difference.difference), out_);
        } else {
          AppendReal(difference.difference, out_);
        }
    }
    out_ += ',';
  }

  void PutRelative(const Difference& difference) {
    if (difference.spelling == Difference::Spelling::kZero) {
      out_ += "0";
    } else if (difference.spelling == Difference::Spelling::kWord) {
      out_ += difference.word;
    } else if (difference.by_zero) {
      out_ += "inf";
    } else {
      AppendReal(difference.percent, out_);
      out_ += '%';
    }
    out_ += ',';
  }

  void PutPair(std::string_view target, std::string_view golden) {
    AppendQuoted(target, out_);
    out_ += ',';
    AppendQuoted(golden, out_);
    out_ += ',';
  }

  void Put(const Entry& entry, const TableRow& row) {
    const Row& target = TargetRow(row);
    const Row* const golden = GoldenRow(row);
    const std::string_view grad = Grad(target);
    const std::string_view golden_grad = golden == nullptr ? kNotAvailable : Grad(*golden);
    PutPair(target.name, golden == nullptr ? kNotAvailable : golden->name);
    PutPair(DType(target_, target), golden == nullptr ? kNotAvailable : DType(golden_, *golden));
    PutPair(Shape(target_, target), golden == nullptr ? kNotAvailable : Shape(golden_, *golden));
    PutPair(grad, golden_grad);
    if (mode_ == StepTable::Mode::kChecksum) {
      PutPair(Checksum(target), golden == nullptr ? kNotAvailable : Checksum(*golden));
    } else {
      if (mode_ == StepTable::Mode::kStatistics) {
        for (size_t i = 0; i < 4; ++i) PutDifference(row.differences[i], i);
        for (const Difference& difference : row.differences) PutRelative(difference);
      } else {
        for (const Figure& figure : row.figures) {
          if (figure.is_number) {
            if (std::isinf(figure.number)) out_ += ' ';
            AppendReal(figure.number, out_);
          } else {
            out_ += figure.word;
          }
          out_ += ',';
        }
      }
      PutStatistics(target, golden, row);
    }
    out_ += grad == golden_grad ? "True," : "False,";
    PutVerdict(row);
    if (target_.has_stacks) {
      out_ += ',';
      const bool first = static_cast<uint32_t>(row.target) == entry.first_row;
      if (first && entry.stack >= 0) {
        out_ += StackText(static_cast<size_t>(entry.stack));
      } else {
        out_ += kNotAvailable;
      }
    }
    if (mode_ == StepTable::Mode::kTensor) {
      std::string names = "[";
      AppendPythonRepr(target.data_name.empty() ? "-1" : target.data_name, names);
      names += ", ";
      AppendPythonRepr(golden == nullptr ? kNotAvailable : golden->data_name.empty() ? "-1" : golden->data_name, names);
      names += ']';
      out_ += ',';
      AppendQuoted(names, out_);
    }
    out_ += '\n';
  }

  void PutStatistics(const Row& target, const Row* golden, const TableRow& row) {
    std::array<std::pair<size_t, size_t>, 4> spelled;
    for (size_t i = 0; i < 4; ++i) {
      const size_t start = out_.size();
      AppendCell(target.statistics[i], 0, i, out_);
      spelled[i] = {start, out_.size() - start};
      out_ += ',';
    }
    for (size_t i = 0; i < 4; ++i) {
      if (golden == nullptr) {
        out_ += kNotAvailable;
      } else if (mode_ == StepTable::Mode::kStatistics && row.differences[i].spelling == Difference::Spelling::kZero) {
        out_.append(out_, spelled[i].first, spelled[i].second);  // spelled the same
      } else {
        AppendCell(golden->statistics[i], 1, i, out_);
      }
      out_ += ',';
    }
  }

  void PutVerdict(const TableRow& row) {
    out_ += row.severity == Severity::kPass ? "pass" : row.severity == Severity::kWarning ? "warning" : "error";
    out_ += ',';
    if (row.messages.empty()) {
      out_ += "[]";
      return;
    }
    std::string messages = "[";
    for (std::string_view message : row.messages) {
      if (messages.size() > 1) messages += ", ";
      messages += Cat("\"", message, "\"");
    }
    messages += ']';
    AppendQuoted(messages, out_);
  }

  // Of a stack, quoted; many entries share one.
  const std::string& StackText(size_t stack) {
    if (stack_texts_.empty()) stack_texts_.resize(target_.stacks.size());
    std::string& text = stack_texts_[stack];
    if (text.empty()) {
      std::string lines = "[";
      for (const std::string& line : target_.stacks[stack]) {
        if (lines.size() > 1) lines += ", ";
        AppendPythonRepr(line, lines);
      }
      lines += ']';
      AppendQuoted(lines, text);
    }
    return text;
  }

  const EstablishedTable& table_;
  const StepTable& target_;
  const StepTable& golden_;
  const StepTable::Mode mode_;
  absl::FunctionRef<absl::Status(std::string_view)> write_;
  bool integers_as_reals_[2][4] = {};
  bool all_integers_[2][4] = {};
  std::vector<std::string> stack_texts_;
  std::string out_;
  VerdictCounts counts_;
};

}  // namespace

absl::StatusOr<VerdictCounts> WriteEstablishedCsv(const EstablishedTable& table,
                                                  absl::FunctionRef<absl::Status(std::string_view chunk)> write) {
  return Writer(table, write).Write();
}

}  // namespace msprobe::server
