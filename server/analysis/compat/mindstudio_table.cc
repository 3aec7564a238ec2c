#include "server/analysis/compat/mindstudio_table.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/base/call_once.h"
#include "absl/strings/match.h"
#include "server/analysis/compare/in_order.h"
#include "server/analysis/compat/mindstudio_cells.h"
#include "server/analysis/compat/mindstudio_rows.h"
#include "server/analysis/table/python_text.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using Kind = Cell::Kind;

constexpr size_t kRowsOfAPart = 1024;
constexpr size_t kBytesOfAPart = size_t{1} << 20;  // about: so that a part seldom moves while it grows
constexpr std::string_view kCommon =
    "NPU Name,Bench Name,NPU Dtype,Bench Dtype,NPU Tensor Shape,Bench Tensor Shape,NPU Requires_grad,"
    "Bench Requires_grad,";
constexpr std::string_view kStatisticsColumns =
    "NPU max,NPU min,NPU mean,NPU l2norm,Bench max,Bench min,Bench mean,Bench l2norm,";
constexpr std::string_view kTail = "Requires_grad Consistent,Result,Err_message";

// The part of a table that one thread writes: whole entries, given by their pairs.
struct Range {
  size_t first = 0;
  size_t end = 0;
};

// What all parts of a table share.
struct Shared {
  // By side and column: how its integers are spelled.
  bool integers_as_reals[2][4] = {};
  bool all_integers[2][4] = {};
  // Of a stack, quoted; many entries share one.
  std::vector<std::string> stack_texts;
  std::vector<absl::once_flag> stack_made;
};

class Writer : public MindstudioRows {
 public:
  Writer(const MindstudioTable& table, Shared& shared)
      : MindstudioRows(*table.target, *table.golden), table_(table), mode_(table.mode), shared_(shared) {}

  void Write(Range range) {
    const auto& pairs = table_.match->pairs;
    out_.reserve(kBytesOfAPart);
    if (range.first == 0) Header();
    if (range.first == range.end) return;
    std::vector<TableRow> group;
    auto entry = std::upper_bound(target_.entries.begin(), target_.entries.end(), RowOf(pairs, range.first), EndsAfter);
    for (size_t i = range.first; i < range.end; ++i) {
      const uint32_t row = RowOf(pairs, i);
      if (row >= entry->first_row + entry->rows) {
        Flush(*entry, group);
        while (row >= entry->first_row + entry->rows) ++entry;
      }
      TableRow added;
      added.target = pairs[i].first;
      added.golden = Partner(i);
      if (table_.contents != nullptr) added.content = &(*table_.contents)[i];
      group.push_back(std::move(added));
    }
    if (!group.empty()) Flush(*entry, group);
  }

  std::vector<Range> Ranges() const {
    const auto& pairs = table_.match->pairs;
    std::vector<Range> ranges = {{}};
    auto entry = target_.entries.begin();
    for (size_t i = 0; i < pairs.size(); ++i) {
      const bool next = RowOf(pairs, i) >= entry->first_row + entry->rows;
      while (RowOf(pairs, i) >= entry->first_row + entry->rows) ++entry;
      if (next && i - ranges.back().first >= kRowsOfAPart) ranges.push_back({i, i});
      ranges.back().end = i + 1;
    }
    return ranges;
  }

  std::string& text() { return out_; }
  const VerdictCounts& counts() const { return counts_; }

  // A column of integers and floats without any word becomes one of floats in mindstudio-probe's tables, and 31 is
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
          // A column with an integer beyond int64 is one of objects, as one with words.
          if (!cell.is_number() || cell.kind == Kind::kUnsigned ||
              (cell.kind == Kind::kReal && std::isnan(cell.real))) {
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
        shared_.integers_as_reals[side][column] =
            has_word[column] ? false : has_real[column] || (!any_word && any_real);
        shared_.all_integers[side][column] =
            !has_word[column] && has_integer[column] && !shared_.integers_as_reals[side][column];
      }
    }
  }

 private:
  static uint32_t RowOf(const std::vector<std::pair<int32_t, int32_t>>& pairs, size_t pair) {
    return static_cast<uint32_t>(pairs[pair].first);
  }
  static bool EndsAfter(uint32_t row, const Entry& entry) { return row < entry.first_row + entry.rows; }

  int32_t Partner(size_t pair) const {
    const auto [target, golden] = table_.match->pairs[pair];
    if (golden == kNoRow || !table_.check_dtypes) return golden;
    const Row& a = target_.rows[static_cast<size_t>(target)];
    const Row& b = golden_.rows[static_cast<size_t>(golden)];
    const auto match = table_.across_frameworks ? DTypesMatchAcrossFrameworks : DTypesMatch;
    return match(DType(target_, a), DType(golden_, b)) ? golden : kNoRow;
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

  void Flush(const Entry& entry, std::vector<TableRow>& group) {
    for (TableRow& row : group) {
      if (mode_ == StepTable::Mode::kStatistics) Differences(row);
      if (mode_ == StepTable::Mode::kTensor) FillFigures(*this, row);
    }
    JudgeMindstudio(table_, group);
    for (const TableRow& row : group) {
      ++counts_.rows;
      counts_.warnings += row.severity == Severity::kWarning;
      counts_.errors += row.severity == Severity::kError;
      counts_.target_only += row.golden == kNoRow;
      Put(entry, row);
    }
    group.clear();
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
    const bool real_a = a.kind == Kind::kReal || (a.kind == Kind::kInteger && shared_.integers_as_reals[0][column]);
    const bool real_b = b.kind == Kind::kReal || (b.kind == Kind::kInteger && shared_.integers_as_reals[1][column]);
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
    if (x == ValueKind::kAbsent || y == ValueKind::kAbsent) return word(kNotAvailable);
    if (x == ValueKind::kDevice && y == ValueKind::kDevice) return word(kNotAvailable);
    return word("Diff");
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
        if (shared_.integers_as_reals[side][column]) {
          AppendReal(static_cast<double>(cell.integer), out);
        } else {
          AppendInteger(cell.integer, out);
        }
        return;
      case Kind::kUnsigned:
        AppendWhole(cell, out);
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
        if (shared_.all_integers[0][column] && shared_.all_integers[1][column]) {
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
    const size_t start = out_.size();
    AppendQuoted(target, out_);
    out_ += ',';
    if (target == golden) {  // what was looked through once need not be again
      out_.append(out_, start, out_.size() - start);
      return;
    }
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
        if (std::all_of(row.differences.begin(), row.differences.end(), [](const Difference& difference) {
              return difference.spelling == Difference::Spelling::kZero;
            })) {
          out_ += "0,0,0,0,0,0,0,0,";
        } else {
          for (size_t i = 0; i < 4; ++i) PutDifference(row.differences[i], i);
          for (const Difference& difference : row.differences) PutRelative(difference);
        }
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

  const std::string& StackText(size_t stack) {
    std::string& text = shared_.stack_texts[stack];
    absl::call_once(shared_.stack_made[stack], [&] {
      std::string lines = "[";
      for (const std::string& line : target_.stacks[stack]) {
        if (lines.size() > 1) lines += ", ";
        AppendPythonRepr(line, lines);
      }
      lines += ']';
      AppendQuoted(lines, text);
    });
    return text;
  }

  const MindstudioTable& table_;
  const StepTable::Mode mode_;
  Shared& shared_;
  std::string out_;
  VerdictCounts counts_;
};

}  // namespace

absl::StatusOr<VerdictCounts> WriteMindstudioCsv(const MindstudioTable& table,
                                                 absl::FunctionRef<absl::Status(std::string& chunk)> write) {
  Shared shared;
  shared.stack_texts.resize(table.target->stacks.size());
  shared.stack_made = std::vector<absl::once_flag>(table.target->stacks.size());
  Writer survey(table, shared);
  survey.SurveyColumns();
  const std::vector<Range> ranges = survey.Ranges();
  struct Part {
    std::string text;
    VerdictCounts counts;
  };
  const auto format = [&](size_t index) -> absl::StatusOr<Part> {
    Writer writer(table, shared);
    writer.Write(ranges[index]);
    return Part{std::move(writer.text()), writer.counts()};
  };
  VerdictCounts counts;
  const auto take = [&](size_t, Part part) -> absl::StatusOr<bool> {
    counts.rows += part.counts.rows;
    counts.warnings += part.counts.warnings;
    counts.errors += part.counts.errors;
    counts.target_only += part.counts.target_only;
    if (absl::Status status = write(part.text); !status.ok()) return status;
    return true;
  };
  if (absl::Status status = InOrder<Part>::Run(ranges.size(), table.threads, format, take); !status.ok()) return status;
  return counts;
}

}  // namespace msprobe::server
