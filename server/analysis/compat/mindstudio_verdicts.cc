#include <algorithm>
#include <initializer_list>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/analysis/compare/row_match.h"
#include "server/analysis/compat/mindstudio_cells.h"
#include "server/analysis/compat/mindstudio_rows.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

class Verdicts : public MindstudioRows {
 public:
  explicit Verdicts(const MindstudioTable& table)
      : MindstudioRows(*table.target, *table.golden),
        mode_(table.mode),
        backend_(table.training_backend),
        across_frameworks_(table.across_frameworks),
        by_place_(table.by_place) {}

  void Judge(std::vector<TableRow>& group) {
    RecordRows record;
    for (TableRow& row : group) {
      (absl::StrContains(AbslView(TargetRow(row).name), ".output.") ? record.outputs : record.inputs).push_back(&row);
    }
    record.judged = record.inputs;
    record.judged.insert(record.judged.end(), record.outputs.begin(), record.outputs.end());
    const std::string_view operation = record.inputs.empty() ? "" : OperationOf(TargetRow(*record.inputs.front()).name);
    if (GivesAnyMemory(operation)) return;
    if (BringsOthersValues(operation)) {
      record.with_inputs = false;
      record.judged = record.outputs;
    }
    // In the order in which their messages stand in a cell.
    if (mode_ == StepTable::Mode::kChecksum) return JudgeChecksums(record);
    JudgeNonFinite(record);
    JudgeNormOfOutputs(record);
    JudgeThousandths(record);
    JudgeGrads(record);
    JudgeScalars(record);
    JudgeDTypes(record);
    JudgeShapes(record);
    JudgeGrowthOfNorm(record);
    JudgeLossOfCosine(record);
  }

 private:
  using Rows = std::vector<TableRow*>;

  // The rows of one record. Rules about inputs and outputs hold only `with_inputs`.
  struct RecordRows {
    Rows inputs;
    Rows outputs;
    Rows judged;  // inputs, if they count, then outputs
    bool with_inputs = true;
  };

  // Its values mean nothing: the record is not judged.
  static bool GivesAnyMemory(std::string_view operation) {
    return IsOneOf(operation, {"empty", "empty_like", "numpy", "to", "__setitem__", "empty_with_format",
                               "new_empty_strided", "new_empty", "empty_strided"});
  }

  // Its outputs do not follow from its inputs.
  static bool BringsOthersValues(std::string_view operation) {
    return IsOneOf(operation, {"_reduce_scatter_base", "_all_gather_base", "all_to_all_single", "batch_isend_irecv"});
  }

  static bool IsOneOf(std::string_view operation, std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), operation) != names.end();
  }

  bool training() const { return backend_ != TrainingBackend::kNone && mode_ == StepTable::Mode::kTensor; }

  void JudgeChecksums(const RecordRows& record) const {
    const auto none = [](std::string_view text) { return text.empty() || text == kNotAvailable || text == "Nan"; };
    for (TableRow* row : record.judged) {
      const Row* const golden = GoldenRow(*row);
      const std::string_view a = Checksum(TargetRow(*row));
      const std::string_view b = golden == nullptr ? kNotAvailable : Checksum(*golden);
      if (a == b) continue;
      if (none(a) || none(b)) {
        Mark(*row, Severity::kWarning, "warning: The parameter of NPU does not match the bench.");
      } else {
        Mark(*row, Severity::kError, "error: The CRC-32 value of NPU differs from that of the bench.");
      }
    }
  }

  void JudgeNonFinite(const RecordRows& record) const {
    for (TableRow* row : record.judged) {
      const Row* const golden = GoldenRow(*row);
      const Row& target = TargetRow(*row);
      if (golden != nullptr && (IsNonFinite(golden->statistics[0]) || IsNonFinite(golden->statistics[1]))) continue;
      if (IsNonFinite(target.statistics[0]) || IsNonFinite(target.statistics[1])) {
        Mark(*row, Severity::kError, "error: There is nan/inf/-inf in the maximum or minimum value of NPU.");
      }
    }
  }

  void JudgeNormOfOutputs(const RecordRows& record) const {
    if (!record.with_inputs || mode_ != StepTable::Mode::kStatistics || !(Largest(record.inputs) < 0.1)) return;
    for (TableRow* row : record.outputs) {
      const Difference& difference = row->differences[3];
      bool large = false;
      if (difference.spelling == Difference::Spelling::kNumber) {
        large = difference.by_zero ? !by_place_ : difference.percent / 100 > 0.5;
      } else if (difference.spelling == Difference::Spelling::kWord) {
        large = difference.word == "inf" || difference.word == "-inf";
      }
      if (large) Mark(*row, Severity::kError, "error: The NormRelativeErr of output is greater than 0.5.");
    }
  }

  void JudgeThousandths(const RecordRows& record) const {
    if (!record.with_inputs || mode_ != StepTable::Mode::kTensor || record.outputs.empty()) return;
    if (Smallest(record.inputs, 4) > 0.9 && Smallest(record.outputs, 4) < 0.1) {
      Mark(*record.outputs.front(), Severity::kError,
           "error: The input/parameters of One Thousandth Err Ratio > 0.9 while the output < 0.6.");
    }
  }

  // MindSpore has no such mark on tensors.
  void JudgeGrads(const RecordRows& record) const {
    if (training() || across_frameworks_) return;
    for (TableRow* row : record.judged) {
      if (GradsDiffer(*row)) {
        Mark(*row, Severity::kError, "error: The Required_Grad of NPU and Bench are inconsistent");
      }
    }
  }

  void JudgeScalars(const RecordRows& record) const {
    if (!record.with_inputs) return;
    for (TableRow* row : record.inputs) {
      const Row* const golden = GoldenRow(*row);
      const Row& target = TargetRow(*row);
      if (golden == nullptr || !absl::StrContains(AbslView(DType(target_, target)), "class") ||
          !absl::StrContains(AbslView(DType(golden_, *golden)), "class") || Shape(target_, target) != "[]") {
        continue;
      }
      if (!SameScalar(target.statistics[0], golden->statistics[0])) {
        Mark(*row, Severity::kError, "error: The scalar parameters of NPU and Bench are inconsistent.");
      }
    }
  }

  void JudgeDTypes(const RecordRows& record) const {
    for (TableRow* row : record.judged) {
      const Row* const golden = GoldenRow(*row);
      if (IsPassedOver(*row) || TargetRow(*row).name == kNotAvailable) continue;
      if (golden != nullptr && IsJoined(*golden)) continue;
      if (golden == nullptr || !SameDType(DType(target_, TargetRow(*row)), DType(golden_, *golden))) {
        Mark(*row, Severity::kError, "error: The dtype of NPU and Bench are inconsistent.");
      }
    }
  }

  // MindSpore's labels and indexes are int32 where PyTorch's are int64.
  bool SameDType(std::string_view a, std::string_view b) const {
    if (a == b) return true;
    if (!across_frameworks_) return false;
    return SameDTypeAcrossFrameworks(a, b) || (IsInteger(DTypeOfName(a)) && DTypesMatchAcrossFrameworks(a, b));
  }

  void JudgeShapes(const RecordRows& record) const {
    for (TableRow* row : record.judged) {
      const Row* const golden = GoldenRow(*row);
      if (IsPassedOver(*row)) continue;
      const Row& target = TargetRow(*row);
      if (golden == nullptr ||
          (training() ? TrainingShapesDiffer(target, *golden) : Shape(target_, target) != Shape(golden_, *golden))) {
        Mark(*row, Severity::kError, "error: The shape of NPU and Bench are inconsistent.");
      }
    }
  }

  void JudgeGrowthOfNorm(const RecordRows& record) const {
    if (!record.with_inputs || record.outputs.empty() || mode_ != StepTable::Mode::kStatistics) return;
    const double in = Largest(record.inputs);
    const double out = Largest(record.outputs);
    if (in == 0 ? out > 0.1 : out / in > 10) {
      Mark(*record.outputs.front(), Severity::kWarning,
           "warning: The norm relative error of output is 10 times that of input.");
    }
  }

  void JudgeLossOfCosine(const RecordRows& record) const {
    if (!record.with_inputs || record.outputs.empty() || mode_ == StepTable::Mode::kStatistics) return;
    const double in = Smallest(record.inputs, 0);
    if (in > 0.9 && in - Smallest(record.outputs, 0) > 0.1) {
      Mark(*record.outputs.front(), Severity::kWarning,
           "warning: The input/parameters of Cosine > 0.9, and input/parameters - output > 0.1");
    }
  }

  static void Mark(TableRow& row, Severity severity, std::string_view message) {
    row.severity = std::max(row.severity, severity);
    row.messages.push_back(message);
  }

  // Where a type or shape is not looked at: a row without partner, except that by place and in one framework it is one
  // that differs from what should be there; and by place None.
  bool IsPassedOver(const TableRow& row) const {
    const Row* const golden = GoldenRow(row);
    if (!by_place_ || (across_frameworks_ && golden == nullptr)) return golden == nullptr;
    return TargetRow(row).is_null || (golden != nullptr && golden->is_null);
  }

  bool GradsDiffer(const TableRow& row) const {
    const Row* const golden = GoldenRow(row);
    const Row& target = TargetRow(row);
    if (!by_place_) return golden != nullptr && Grad(target) != Grad(*golden);
    if (target.requires_grad == Row::Grad::kAbsent) return false;
    return golden == nullptr ||
           (golden->requires_grad != Row::Grad::kAbsent && golden->requires_grad != target.requires_grad);
  }

  // By its name, as mindstudio-probe tells them.
  static bool IsJoined(const Row& golden) {
    return absl::StrContains(AbslView(golden.name), "qkv") || absl::StrContains(AbslView(golden.name), "gate_up");
  }

  static std::vector<std::string> Squeezed(std::string_view shape) {
    std::vector<std::string> dims =
        absl::StrSplit(absl::StripPrefix(absl::StripSuffix(AbslView(shape), "]"), "["), ',');
    for (std::string& dim : dims) absl::StripAsciiWhitespace(&dim);
    std::erase(dims, "1");
    return dims;
  }

  // Without axes of size 1; of Megatron's, which has heads apart, the last two axes as one.
  bool TrainingShapesDiffer(const Row& target, const Row& golden) const {
    if (target.name == kNotAvailable) return false;
    if (backend_ == TrainingBackend::kFsdp && IsJoined(golden)) return false;
    std::vector<std::string> a = Squeezed(Shape(target_, target));
    const std::vector<std::string> b = Squeezed(Shape(golden_, golden));
    if (backend_ == TrainingBackend::kMegatron && a.size() == 3 && b.size() != 3) {
      int64_t heads = 0;
      int64_t size = 0;
      if (absl::SimpleAtoi(a[1], &heads) && absl::SimpleAtoi(a[2], &size)) {
        a.pop_back();
        a.back() = Cat(heads * size);
      }
    }
    return a != b;
  }

  // As a ratio where it is a percentage; nothing for words.
  static std::optional<double> RatioOf(const Difference& difference) {
    if (difference.spelling != Difference::Spelling::kNumber || difference.by_zero) return std::nullopt;
    return difference.percent / 100;
  }

  static double Largest(const Rows& rows) {
    double largest = 0;
    for (const TableRow* row : rows) largest = std::max(largest, RatioOf(row->differences[3]).value_or(0));
    return largest;
  }

  static double Smallest(const Rows& rows, size_t figure) {
    double smallest = 1;
    for (const TableRow* row : rows) {
      if (row->figures[figure].is_number) smallest = std::min(smallest, row->figures[figure].number);
    }
    return smallest;
  }

  const StepTable::Mode mode_;
  const TrainingBackend backend_;
  const bool across_frameworks_;
  const bool by_place_;
};

}  // namespace

void JudgeMindstudio(const MindstudioTable& table, std::vector<TableRow>& group) { Verdicts(table).Judge(group); }

}  // namespace msprobe::server
