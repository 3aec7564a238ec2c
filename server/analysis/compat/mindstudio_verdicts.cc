#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/analysis/compat/mindstudio_cells.h"
#include "server/analysis/compat/mindstudio_rows.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

class Verdicts : public MindstudioRows {
 public:
  explicit Verdicts(const MindstudioTable& table)
      : MindstudioRows(*table.target, *table.golden), mode_(table.mode), backend_(table.training_backend) {}

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
      if (golden != nullptr && (IsNonFinite(golden->statistics[0]) || IsNonFinite(golden->statistics[1]))) continue;
      if (IsNonFinite(target.statistics[0]) || IsNonFinite(target.statistics[1])) {
        Mark(*row, Severity::kError, "error: There is nan/inf/-inf in the maximum or minimum value of NPU.");
      }
    }
    if (with_inputs && mode_ == StepTable::Mode::kStatistics) JudgeNormOfOutputs(inputs, outputs);
    if (with_inputs && mode_ == StepTable::Mode::kTensor && !outputs.empty() && Smallest(inputs, 4) > 0.9 &&
        Smallest(outputs, 4) < 0.1) {
      Mark(*outputs.front(), Severity::kError,
           "error: The input/parameters of One Thousandth Err Ratio > 0.9 while the output < 0.6.");
    }
    const bool training = backend_ != TrainingBackend::kNone && mode_ == StepTable::Mode::kTensor;
    for (TableRow* row : all) {
      const Row* const golden = GoldenRow(*row);
      if (!training && golden != nullptr && Grad(TargetRow(*row)) != Grad(*golden)) {
        Mark(*row, Severity::kError, "error: The Required_Grad of NPU and Bench are inconsistent");
      }
    }
    if (with_inputs) {
      for (TableRow* row : inputs) JudgeScalar(*row);
    }
    for (TableRow* row : all) {
      const Row* const golden = GoldenRow(*row);
      if (golden == nullptr || IsJoined(*golden) || TargetRow(*row).name == kNotAvailable) continue;
      if (DType(target_, TargetRow(*row)) != DType(golden_, *golden)) {
        Mark(*row, Severity::kError, "error: The dtype of NPU and Bench are inconsistent.");
      }
    }
    for (TableRow* row : all) {
      const Row* const golden = GoldenRow(*row);
      if (golden == nullptr) continue;
      if (training ? TrainingShapesDiffer(TargetRow(*row), *golden)
                   : Shape(target_, TargetRow(*row)) != Shape(golden_, *golden)) {
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

 private:
  static void Mark(TableRow& row, Severity severity, std::string_view message) {
    row.severity = std::max(row.severity, severity);
    row.messages.push_back(message);
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
    if (!SameScalar(target.statistics[0], golden->statistics[0])) {
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

  const StepTable::Mode mode_;
  const TrainingBackend backend_;
};

}  // namespace

void JudgeMindstudio(const MindstudioTable& table, std::vector<TableRow>& group) { Verdicts(table).Judge(group); }

}  // namespace msprobe::server
