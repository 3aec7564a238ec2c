#include "server/analysis/compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/analysis/module_tree/module_tree.h"
#include "server/analysis/table/statistic.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr std::string_view kStatisticNames[] = {"Max", "Min", "Mean", "Norm"};

bool SameCell(const Cell& a, const Cell& b) {
  if (a.kind == Cell::Kind::kText || b.kind == Cell::Kind::kText) return a.kind == b.kind && a.view() == b.view();
  if (a.kind == Cell::Kind::kNone || b.kind == Cell::Kind::kNone) return a.kind == b.kind;
  return IsSame(a, b) || (std::isnan(a.number()) && std::isnan(b.number()));
}

bool IsFloating(std::string_view dtype) {
  return dtype.find("float") != std::string_view::npos || dtype.find("Float") != std::string_view::npos ||
         dtype.find("complex") != std::string_view::npos || dtype.find("Complex") != std::string_view::npos;
}

class RowJudge {
 public:
  RowJudge(const StepTable& target, const StepTable& golden, const CompareOptions& options)
      : target_(target), golden_(golden), options_(options), across_frameworks_(AcrossFrameworks(target, golden)) {}

  ComparedRow Judge(int32_t target, int32_t golden, const ContentResult* content) {
    ComparedRow row = JudgePair(target, golden, content);
    if (across_frameworks_ && target != kNoRow && golden != kNoRow && IsDifference(row.verdict) &&
        IsGradientOfCall(target_.rows[static_cast<size_t>(target)])) {
      row.verdict = Verdict::kUnknown;
    }
    return row;
  }

 private:
  // What the backward pass of an API call gives: of PyTorch by the last of the nodes that the call made, of MindSpore
  // by the whole call. What it gives in the end stands in the records that take it.
  static bool IsGradientOfCall(const Row& row) {
    return row.state == RowState::kOutput && row.name.find(".backward.") != std::string_view::npos &&
           !IsModuleKind(row.name.substr(0, row.name.find('.')));
  }

  ComparedRow JudgePair(int32_t target, int32_t golden, const ContentResult* content) {
    ComparedRow row;
    row.target = target;
    row.golden = golden;
    if (golden == kNoRow || target == kNoRow) {
      row.verdict = golden == kNoRow ? Verdict::kTargetOnly : Verdict::kGoldenOnly;
      row.excess = kInfinite;
      return row;
    }
    const Row& a = target_.rows[static_cast<size_t>(target)];
    const Row& b = golden_.rows[static_cast<size_t>(golden)];
    if (a.is_tensor != b.is_tensor) return Ended(row, a.is_null && b.is_null ? Verdict::kEqual : Verdict::kDType);
    if (!a.is_tensor) {
      const bool same =
          a.is_null == b.is_null && SameValue(a, b) && (a.is_null || target_.text(a.shape) == golden_.text(b.shape));
      row.basis = Basis::kStatistics;
      return same ? row.verdict = Verdict::kEqual, row : Ended(row, Verdict::kScalar);
    }
    const std::string_view dtype_a = target_.text(a.dtype);
    const std::string_view dtype_b = golden_.text(b.dtype);
    if (!DTypesMatch(dtype_a, dtype_b) && IsFloating(dtype_a) != IsFloating(dtype_b)) {
      return Ended(row, Verdict::kDType);
    }
    if (target_.text(a.shape) != golden_.text(b.shape)) return Ended(row, Verdict::kShape);
    if (content != nullptr && content->kind != ContentResult::Kind::kNoFile &&
        content->kind != ContentResult::Kind::kUnsupported) {
      return OfContent(row, *content, ToleranceOf(a, b));
    }
    if (options_.mode == CompareMode::kContent) return Ended(row, Verdict::kUnreadable);
    return OfSummary(row, a, b, dtype_a, dtype_b);
  }

  bool SameValue(const Row& a, const Row& b) const {
    const Cell& ours = a.statistics[0];
    const Cell& theirs = b.statistics[0];
    if (SameCell(ours, theirs) && a.said == b.said) return true;
    return across_frameworks_ && ours.kind == Cell::Kind::kText && theirs.kind == Cell::Kind::kText &&
           SameDTypeAcrossFrameworks(ours.view(), theirs.view());
  }

  // Without rules by name it is that of the dtypes, of which there are few.
  Tolerance ToleranceOf(const Row& a, const Row& b) {
    const std::string_view dtype_a = target_.text(a.dtype);
    const std::string_view dtype_b = golden_.text(b.dtype);
    if (options_.tolerances.by_name()) return options_.tolerances.Of(dtype_a, dtype_b, a.name);
    const auto [known, added] = known_.try_emplace(uint64_t{a.dtype} << 32 | b.dtype);
    if (added) known->second = options_.tolerances.Of(dtype_a, dtype_b);
    return known->second;
  }

  static ComparedRow Ended(ComparedRow row, Verdict verdict) {
    row.verdict = verdict;
    row.excess = kInfinite;
    return row;
  }

  static ComparedRow OfContent(ComparedRow row, const ContentResult& content, Tolerance tolerance) {
    row.basis = Basis::kContent;
    if (content.kind == ContentResult::Kind::kUnreadable) return Ended(row, Verdict::kUnreadable);
    if (content.kind == ContentResult::Kind::kShapes) return Ended(row, Verdict::kShape);
    const ElementwiseMetrics& metrics = content.metrics;
    row.target_value = metrics.worst.target;
    row.golden_value = metrics.worst.golden;
    if (metrics.non_finite.first_mismatch) return Ended(row, Verdict::kNonFinite);
    if (metrics.different == 0) {
      row.verdict = Verdict::kEqual;
      return row;
    }
    const double allowed = tolerance.absolute + tolerance.relative * std::fabs(metrics.worst.golden.number());
    row.excess = std::max(metrics.worst_excess, allowed > 0 ? metrics.absolute.max / allowed : kInfinite);
    row.verdict = metrics.over_tolerance != 0 ? Verdict::kDiffers : Verdict::kWithin;
    return row;
  }

  ComparedRow OfSummary(ComparedRow row, const Row& a, const Row& b, std::string_view dtype_a,
                        std::string_view dtype_b) {
    const bool checksums = AreOfOneFunction(a.checksum, b.checksum) && SameBits(dtype_a, dtype_b) &&
                           options_.mode != CompareMode::kStatistics;
    if (checksums && a.checksum == b.checksum) {
      row.basis = Basis::kChecksum;
      row.verdict = Verdict::kEqual;
      return row;
    }
    const bool statistics = a.statistics[0].kind != Cell::Kind::kNone && b.statistics[0].kind != Cell::Kind::kNone &&
                            options_.mode != CompareMode::kChecksum;
    if (statistics) {
      const Tolerance tolerance = ToleranceOf(a, b);
      row = OfStatistics(row, a, b, tolerance);
      if (!checksums || row.verdict != Verdict::kEqual) return row;
      // The bits differ, though the statistics do not show it.
      row.basis = Basis::kChecksum;
      if (tolerance.relative == 0 && tolerance.absolute == 0) return Ended(row, Verdict::kDiffers);
      row.verdict = Verdict::kWithin;
      return row;
    }
    if (!checksums) {
      row.verdict = Verdict::kUnknown;
      return row;
    }
    row.basis = Basis::kChecksum;
    return Ended(row, Verdict::kDiffers);
  }

  // Whether both are there, and made by the same function: xor begins with 0x, which CRC-32 never does.
  static bool AreOfOneFunction(std::string_view one, std::string_view other) {
    return !one.empty() && one.size() == other.size() && one.starts_with("0x") == other.starts_with("0x");
  }

  // Whether equal numbers of these dtypes have equal checksums. MindSpore's of bfloat16 are those of float32.
  bool SameBits(std::string_view dtype_a, std::string_view dtype_b) const {
    if (dtype_a == dtype_b) return true;
    if (!across_frameworks_ || !SameDTypeAcrossFrameworks(dtype_a, dtype_b)) return false;
    return DTypeOfName(dtype_a) != v1::DTYPE_BFLOAT16;
  }

  ComparedRow OfStatistics(ComparedRow row, const Row& a, const Row& b, Tolerance tolerance) {
    row.basis = Basis::kStatistics;
    row.verdict = Verdict::kEqual;
    if (SameNumbers(a, b)) return row;
    if (b.shape >= elements_.size()) elements_.resize(golden_.texts.size(), 0);
    double& elements = elements_[b.shape];
    if (elements == 0) elements = std::max(1.0, ElementsOf(golden_.text(b.shape)));
    const double norm = std::max(Magnitude(a.statistics[3]), Magnitude(b.statistics[3]));
    for (size_t i = 0; i < 4; ++i) {
      const auto [ours, theirs] = Values(a, b, i);
      if (!HasNumber(ours) || !HasNumber(theirs)) continue;
      const double x = ours.number(), y = theirs.number();
      if (IsSame(ours, theirs) || (std::isnan(x) && std::isnan(y))) continue;
      if (!std::isfinite(x) || !std::isfinite(y)) {
        row = Ended(row, Verdict::kNonFinite);
        row.statistic = kStatisticNames[i];
        row.target_value = ours;
        row.golden_value = theirs;
        return row;
      }
      // A mean cancels: it is measured by the size of an element. A norm adds up the absolute part.
      const double scale = i == 2 ? std::max(std::fabs(y), norm / std::sqrt(elements)) : std::fabs(y);
      const double allowed = tolerance.absolute * (i == 3 ? std::sqrt(elements) : 1) + tolerance.relative * scale;
      // Integers that no double tells apart differ by something.
      const double excess = allowed > 0 ? std::fabs(x - y) / allowed : kInfinite;
      if (row.verdict == Verdict::kEqual) row.verdict = Verdict::kWithin;
      if (excess > 1) row.verdict = Verdict::kDiffers;
      if (excess >= row.excess) {
        row.excess = excess;
        row.statistic = kStatisticNames[i];
        row.target_value = ours;
        row.golden_value = theirs;
      }
    }
    return row;
  }

  // Bit by bit: what most rows of most steps are.
  bool SameNumbers(const Row& a, const Row& b) const {
    for (size_t i = 0; i < 4; ++i) {
      const Cell& x = a.statistics[i];
      const Cell& y = b.statistics[i];
      if (x.kind != y.kind || x.kind == Cell::Kind::kText || x.integer != y.integer) return false;
    }
    if ((a.extended >= 0) != (b.extended >= 0)) return false;
    if (a.extended < 0) return true;
    const ExtendedStatistics& more_a = target_.extended[static_cast<size_t>(a.extended)];
    const ExtendedStatistics& more_b = golden_.extended[static_cast<size_t>(b.extended)];
    return more_a.has_mean == more_b.has_mean && more_a.has_norm == more_b.has_norm && more_a.mean == more_b.mean &&
           more_a.norm == more_b.norm;
  }

  static double Magnitude(const Cell& cell) {
    const double value = cell.is_number() ? cell.number() : 0;
    return std::isfinite(value) ? std::fabs(value) : 0;
  }

  static bool HasNumber(const Cell& cell) { return cell.is_number() || cell.kind == Cell::Kind::kBoolean; }

  // The means and norms that a default dump leaves null are taken where both sides have them.
  std::pair<Cell, Cell> Values(const Row& a, const Row& b, size_t i) const {
    if (i >= 2 && a.extended >= 0 && b.extended >= 0) {
      const ExtendedStatistics& more_a = target_.extended[static_cast<size_t>(a.extended)];
      const ExtendedStatistics& more_b = golden_.extended[static_cast<size_t>(b.extended)];
      if (i == 2 && more_a.has_mean && more_b.has_mean) return {Cell::Real(more_a.mean), Cell::Real(more_b.mean)};
      if (i == 3 && more_a.has_norm && more_b.has_norm) return {Cell::Real(more_a.norm), Cell::Real(more_b.norm)};
    }
    return {a.statistics[i], b.statistics[i]};
  }

  const StepTable& target_;
  const StepTable& golden_;
  const CompareOptions& options_;
  const bool across_frameworks_;
  absl::flat_hash_map<uint64_t, Tolerance> known_;  // by both dtypes
  std::vector<double> elements_;                    // by shape of the golden side; 0: not known yet
};

std::vector<uint32_t> EntriesOfRows(const StepTable& table) {
  std::vector<uint32_t> entries(table.rows.size());
  for (size_t i = 0; i < table.entries.size(); ++i) {
    const Entry& entry = table.entries[i];
    std::fill_n(entries.begin() + entry.first_row, entry.rows, static_cast<uint32_t>(i));
  }
  return entries;
}

// Of one module: its own rows, and those of the layer that it is.
struct Tallies {
  VerdictTally module;
  VerdictTally layer;
};

}  // namespace

std::string_view VerdictName(Verdict verdict) {
  constexpr std::string_view kNames[kVerdicts] = {"equal",       "within",  "unknown",    "target only",
                                                  "golden only", "differs", "non-finite", "scalar",
                                                  "shape",       "dtype",   "unreadable"};
  return kNames[static_cast<size_t>(verdict)];
}

bool IsDifference(Verdict verdict) {
  return verdict != Verdict::kEqual && verdict != Verdict::kWithin && verdict != Verdict::kUnknown;
}

void VerdictTally::Add(Verdict verdict, double excess, std::string_view name) {
  ++rows;
  ++by_verdict[static_cast<size_t>(verdict)];
  if (!IsDifference(verdict)) return;
  if (first_difference.empty()) first_difference = name;
  const bool matched = verdict != Verdict::kTargetOnly && verdict != Verdict::kGoldenOnly;
  if (matched && excess > worst_excess) {
    worst_excess = excess;
    worst = name;
  }
}

void VerdictTally::Add(const VerdictTally& later) {
  rows += later.rows;
  for (size_t i = 0; i < kVerdicts; ++i) by_verdict[i] += later.by_verdict[i];
  if (later.worst_excess > worst_excess) {
    worst_excess = later.worst_excess;
    worst = later.worst;
  }
  if (first_difference.empty()) first_difference = later.first_difference;
}

bool VerdictTally::differs() const {
  for (size_t i = 0; i < kVerdicts; ++i) {
    if (by_verdict[i] != 0 && IsDifference(static_cast<Verdict>(i))) return true;
  }
  return false;
}

ComparedRow JudgeRow(const StepTable& target, const StepTable& golden, const CompareOptions& options,
                     int32_t target_row, int32_t golden_row, const ContentResult* content) {
  return RowJudge(target, golden, options).Judge(target_row, golden_row, content);
}

bool SurelyAgree(const StepTable& target, const StepTable& golden, const CompareOptions& options) {
  if (target.layout == nullptr || target.layout != golden.layout) return false;
  RowJudge judge(target, golden, options);
  for (size_t i = 0; i < target.rows.size(); ++i) {
    const auto row = static_cast<int32_t>(i);
    if (IsDifference(judge.Judge(row, row, nullptr).verdict)) return false;
  }
  return true;
}

void SortBySignificance(const std::vector<ComparedRow>& rows, std::vector<size_t>& order) {
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const ComparedRow& x = rows[a];
    const ComparedRow& y = rows[b];
    return x.verdict != y.verdict ? x.verdict > y.verdict : x.excess > y.excess;
  });
}

absl::StatusOr<StepComparison> CompareStep(const TableSource& target, const TableSource& golden,
                                           const CompareOptions& options) {
  const StepTable& a = target.table();
  const StepTable& b = golden.table();
  StepComparison result;
  result.match = MatchRows(a, b, options.mapping, options.fuzzy);
  const std::vector<uint32_t> target_entries = EntriesOfRows(a);
  const std::vector<uint32_t> golden_entries = EntriesOfRows(b);
  if (options.wanted) {
    std::vector<bool> wanted_target(a.entries.size());
    std::vector<bool> wanted_golden(b.entries.size());
    for (size_t i = 0; i < a.entries.size(); ++i) wanted_target[i] = options.wanted(a.entries[i].name);
    for (size_t i = 0; i < b.entries.size(); ++i) wanted_golden[i] = options.wanted(b.entries[i].name);
    std::erase_if(result.match.pairs,
                  [&](const auto& pair) { return !wanted_target[target_entries[static_cast<size_t>(pair.first)]]; });
    std::erase_if(result.match.golden_only,
                  [&](int32_t row) { return !wanted_golden[golden_entries[static_cast<size_t>(row)]]; });
  }
  const bool with_contents =
      options.mode == CompareMode::kContent ||
      (options.mode == CompareMode::kBest && a.mode == StepTable::Mode::kTensor && b.mode == StepTable::Mode::kTensor);
  if (with_contents) {
    ContentComparison content = options.content;
    content.tolerances = &options.tolerances;
    auto contents = CompareContents(result.match, target, golden, content);
    if (!contents.ok()) return contents.status();
    result.contents = *std::move(contents);
  }
  RowJudge judge(a, b, options);
  result.rows.reserve(result.match.pairs.size() + result.match.golden_only.size());
  ModuleTree tree;
  std::vector<Tallies> tallies;  // by module
  const auto add = [&](ComparedRow row, const Entry& entry, std::string_view name) {
    const uint32_t module = tree.Add(ModuleOf(entry));
    tallies.resize(tree.modules().size());
    result.total.Add(row.verdict, row.excess, name);
    tallies[module].module.Add(row.verdict, row.excess, name);
    if (const uint32_t layer = tree.modules()[module].layer; layer != ModuleTree::kTop) {
      tallies[layer].layer.Add(row.verdict, row.excess, name);
    }
    result.rows.push_back(row);
  };
  for (size_t i = 0; i < result.match.pairs.size(); ++i) {
    const auto [x, y] = result.match.pairs[i];
    ComparedRow row = judge.Judge(x, y, with_contents ? &result.contents[i] : nullptr);
    if (with_contents) row.content = static_cast<int32_t>(i);
    add(row, a.entries[target_entries[static_cast<size_t>(x)]], a.rows[static_cast<size_t>(x)].name);
  }
  for (const int32_t y : result.match.golden_only) {
    add(judge.Judge(kNoRow, y, nullptr), b.entries[golden_entries[static_cast<size_t>(y)]],
        b.rows[static_cast<size_t>(y)].name);
  }
  for (size_t i = 0; i < tallies.size(); ++i) {
    const std::string path(tree.modules()[i].path);
    if (tallies[i].layer.rows != 0) result.layers.emplace(path, std::move(tallies[i].layer));
    if (tallies[i].module.rows != 0) result.modules.emplace(path, std::move(tallies[i].module));
  }
  return result;
}

}  // namespace msprobe::server
