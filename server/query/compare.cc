#include <fnmatch.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <optional>

#include "absl/strings/str_join.h"
#include "server/analysis/comparison.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/query/analysis_context.h"
#include "server/query/step_sources.h"

namespace msprobe::server {
namespace {

constexpr int kRowsAMessage = 500;

absl::Status AddTolerances(const v1::CompareRequest& request, Tolerances& tolerances) {
  for (const v1::ToleranceSetting& setting : request.tolerances()) {
    for (const auto& [has, value, name] : {std::tuple(setting.has_relative(), setting.relative(), "relative"),
                                           std::tuple(setting.has_absolute(), setting.absolute(), "absolute")}) {
      if (has && !(value >= 0)) {
        return absl::InvalidArgumentError(Cat(name, " tolerance ", value, " is not allowed: it must be 0 or more"));
      }
    }
    if (setting.dtype().empty()) {
      tolerances.Override(setting.has_relative() ? std::optional<double>(setting.relative()) : std::nullopt,
                          setting.has_absolute() ? std::optional<double>(setting.absolute()) : std::nullopt);
      continue;
    }
    if (DTypeOfName(setting.dtype()) == v1::DTYPE_OTHER) {
      return absl::InvalidArgumentError(Cat("tolerance for dtype \"", setting.dtype(),
                                            "\": there is no such dtype; write float32, bfloat16, int64, ..."));
    }
    Tolerance tolerance = tolerances.Of(setting.dtype(), setting.dtype());
    if (setting.has_relative()) tolerance.relative = setting.relative();
    if (setting.has_absolute()) tolerance.absolute = setting.absolute();
    tolerances.Set(setting.dtype(), tolerance);
  }
  return absl::OkStatus();
}

void FillMetrics(const ElementwiseMetrics& metrics, v1::ElementMetrics& out) {
  out.set_elements(metrics.elements);
  out.set_compared(metrics.compared);
  out.set_different(metrics.different);
  out.set_over_tolerance(metrics.over_tolerance);
  out.set_nan_mismatches(metrics.nan_mismatches);
  out.set_inf_mismatches(metrics.inf_mismatches);
  out.set_inf_sign_mismatches(metrics.inf_sign_mismatches);
  if (metrics.first_non_finite_mismatch) out.set_first_non_finite_mismatch(*metrics.first_non_finite_mismatch);
  out.set_max_abs(metrics.max_abs);
  out.set_mean_abs(metrics.mean_abs);
  out.set_rms_abs(metrics.rms_abs);
  out.set_max_rel(metrics.max_rel);
  out.set_mean_rel(metrics.mean_rel);
  out.set_rms_rel(metrics.rms_rel);
  out.set_share_under_1e2(metrics.share_under[0]);
  out.set_share_under_5e3(metrics.share_under[1]);
  out.set_share_under_1e3(metrics.share_under[2]);
  out.set_share_under_1e4(metrics.share_under[3]);
  out.set_cosine(metrics.cosine);
  out.set_euclidean(metrics.euclidean);
  if (metrics.ulp) {
    out.set_ulp_max(metrics.ulp->max);
    out.set_ulp_mean(metrics.ulp->mean);
    out.set_ulp_share_over(metrics.ulp->share_over);
  }
  out.set_abs_p50(metrics.percentiles[0]);
  out.set_abs_p90(metrics.percentiles[1]);
  out.set_abs_p99(metrics.percentiles[2]);
  out.set_abs_p999(metrics.percentiles[3]);
  out.set_worst_index(metrics.worst_index);
  out.set_worst_target(metrics.worst_target);
  out.set_worst_golden(metrics.worst_golden);
}

void FillTally(const VerdictTally& tally, v1::VerdictTally& out) {
  out.set_rows(tally.rows);
  for (uint64_t count : tally.by_verdict) out.add_by_verdict(count);
  out.set_worst_excess(tally.worst_excess);
  out.set_worst(tally.worst);
  out.set_first_difference(tally.first_difference);
}

void Merge(const VerdictTally& from, VerdictTally& to) {
  to.rows += from.rows;
  for (size_t i = 0; i < kVerdicts; ++i) to.by_verdict[i] += from.by_verdict[i];
  if (from.worst_excess > to.worst_excess) {
    to.worst_excess = from.worst_excess;
    to.worst = from.worst;
  }
  if (to.first_difference.empty()) to.first_difference = from.first_difference;
}

void AddRollUp(v1::RollUp::Level level, const std::string& name, const AnalysisSource::Place* place,
               const VerdictTally& tally, v1::RollUps& out) {
  v1::RollUp& added = *out.add_roll_ups();
  added.set_level(level);
  added.set_name(name);
  if (place != nullptr) {
    if (level != v1::RollUp::RANK) added.set_step(place->first);
    if (level != v1::RollUp::STEP) *added.mutable_rank() = RankOfPlace(*place);
  }
  FillTally(tally, *added.mutable_tally());
}

// Answers about one pair of steps.
class StepAnswer {
 public:
  StepAnswer(const v1::CompareRequest& request, const PlacePair& place, const StepPair& steps,
             const StepComparison& comparison, const Send<v1::CompareResponse>& send)
      : request_(request),
        place_(place),
        target_(steps.target->table()),
        golden_(steps.golden->table()),
        comparison_(comparison),
        send_(send) {}

  absl::Status Send() {
    if (absl::Status status = SendRows(); !status.ok()) return status;
    v1::CompareResponse response;
    v1::RollUps& roll_ups = *response.mutable_roll_ups();
    for (const auto& [name, tally] : comparison_.modules) {
      AddRollUp(v1::RollUp::MODULE, name, &place_.target, tally, roll_ups);
    }
    for (const auto& [name, tally] : comparison_.layers) {
      AddRollUp(v1::RollUp::LAYER, name, &place_.target, tally, roll_ups);
    }
    return send_(response) ? absl::OkStatus() : PeerGone();
  }

 private:
  absl::Status SendRows() {
    if (request_.rows() == v1::CompareRequest::NONE) return absl::OkStatus();
    std::vector<size_t> order;
    for (size_t i = 0; i < comparison_.rows.size(); ++i) {
      if (request_.rows() == v1::CompareRequest::ALL || IsDifference(comparison_.rows[i].verdict)) order.push_back(i);
    }
    if (request_.order() == v1::CompareRequest::SIGNIFICANCE) {
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        const ComparedRow& x = comparison_.rows[a];
        const ComparedRow& y = comparison_.rows[b];
        return x.verdict != y.verdict ? x.verdict > y.verdict : x.excess > y.excess;
      });
    }
    if (request_.limit() != 0 && order.size() > request_.limit()) order.resize(request_.limit());
    IndexEntries();
    v1::CompareResponse response;
    for (size_t i : order) {
      Fill(i, *response.mutable_tensors()->add_rows());
      if (response.tensors().rows_size() < kRowsAMessage) continue;
      if (!send_(response)) return PeerGone();
      response.Clear();
    }
    if (!response.has_tensors()) return absl::OkStatus();
    return send_(response) ? absl::OkStatus() : PeerGone();
  }

  void IndexEntries() {
    for (const auto& [table, entries] :
         {std::pair(&target_, &target_entries_), std::pair(&golden_, &golden_entries_)}) {
      entries->resize(table->rows.size());
      for (const Entry& entry : table->entries) {
        std::fill_n(entries->begin() + entry.first_row, entry.rows, &entry);
      }
    }
  }

  void Fill(size_t index, v1::ComparedTensor& out) const {
    const ComparedRow& row = comparison_.rows[index];
    const Row* const a = row.target == kNoRow ? nullptr : &target_.rows[static_cast<size_t>(row.target)];
    const Row* const b = row.golden == kNoRow ? nullptr : &golden_.rows[static_cast<size_t>(row.golden)];
    const Entry& entry = a != nullptr ? *target_entries_[static_cast<size_t>(row.target)]
                                      : *golden_entries_[static_cast<size_t>(row.golden)];
    const std::string_view name = (a != nullptr ? a : b)->name;
    const auto text = [](std::string_view view) { return std::string(view); };
    out.set_name(text(name));
    if (a != nullptr && b != nullptr && a->name != b->name) out.set_golden_name(text(b->name));
    out.set_step(place_.target.first);
    *out.mutable_rank() = RankOfPlace(place_.target);
    out.set_token(entry.token);
    out.set_module(text(ModuleOf(entry)));
    out.set_verdict(static_cast<v1::RowVerdict>(row.verdict));
    out.set_basis(static_cast<v1::VerdictBasis>(row.basis));
    if (a != nullptr) {
      out.set_target_dtype(text(target_.text(a->dtype)));
      out.set_target_shape(text(target_.text(a->shape)));
    }
    if (b != nullptr) {
      out.set_golden_dtype(text(golden_.text(b->dtype)));
      out.set_golden_shape(text(golden_.text(b->shape)));
    }
    out.set_excess(row.excess);
    out.set_statistic(text(row.statistic));
    out.set_target_value(row.target_value);
    out.set_golden_value(row.golden_value);
    out.set_order(index);
    if (row.content < 0 || static_cast<size_t>(row.content) >= comparison_.contents.size()) return;
    const ContentResult& content = comparison_.contents[static_cast<size_t>(row.content)];
    if (row.basis == Basis::kContent && content.kind == ContentResult::Kind::kCompared) {
      FillMetrics(content.metrics, *out.mutable_metrics());
    }
    out.set_message(content.message);
  }

  const v1::CompareRequest& request_;
  const PlacePair& place_;
  const StepTable& target_;
  const StepTable& golden_;
  const StepComparison& comparison_;
  const msprobe::server::Send<v1::CompareResponse>& send_;
  std::vector<const Entry*> target_entries_;
  std::vector<const Entry*> golden_entries_;
};

}  // namespace

absl::Status Compare(const AnalysisContext& context, const v1::CompareRequest& request,
                     const std::function<bool()>& cancelled, const Send<v1::CompareResponse>& send) {
  ComparisonOptions options;
  if (absl::Status status = AddTolerances(request, options.tolerances); !status.ok()) return status;
  options.mode = static_cast<ComparisonMode>(request.mode());
  options.fuzzy = request.matching() == v1::MATCHING_FUZZY;
  options.content.threads = context.threads;
  options.content.cancelled = cancelled;
  if (!request.scope().name_glob().empty()) {
    options.wanted = [&request](std::string_view name) {
      return fnmatch(request.scope().name_glob().c_str(), std::string(name).c_str(), 0) == 0;
    };
  }
  auto target = AnalysisSource::Open(request.target(), *context.store, context.paths_allowed);
  if (!target.ok()) return target.status();
  auto golden = AnalysisSource::Open(request.golden(), *context.store, context.paths_allowed);
  if (!golden.ok()) return golden.status();
  std::vector<v1::UnpairedStep> unpaired;
  auto pairs = PairPlaces(*target, *golden, request.scope(), unpaired);
  if (!pairs.ok()) return pairs.status();

  std::map<std::pair<int, uint32_t>, VerdictTally> ranks;
  std::map<uint32_t, VerdictTally> steps_total;
  VerdictTally run;
  uint64_t done = 0;
  for (const PlacePair& pair : *pairs) {
    if (cancelled()) return PeerGone();
    auto steps =
        ReadPair(*target, *golden, pair, {.stacks = false, .construct = true}, {.stacks = false, .construct = true});
    if (!steps.ok()) return steps.status();
    auto comparison = CompareStep(*steps->target, *steps->golden, options);
    if (!comparison.ok()) return comparison.status();
    if (absl::Status status = StepAnswer(request, pair, *steps, *comparison, send).Send(); !status.ok()) return status;
    Merge(comparison->total, ranks[pair.target.second]);
    Merge(comparison->total, steps_total[pair.target.first]);
    Merge(comparison->total, run);
    v1::CompareResponse progress;
    progress.mutable_progress()->set_steps_done(++done);
    progress.mutable_progress()->set_steps_total(pairs->size());
    if (!send(progress)) return PeerGone();
  }
  for (const v1::UnpairedStep& lonely : unpaired) {
    v1::CompareResponse response;
    *response.mutable_unpaired() = lonely;
    if (!send(response)) return PeerGone();
  }
  v1::CompareResponse response;
  v1::RollUps& roll_ups = *response.mutable_roll_ups();
  for (const auto& [rank, tally] : ranks) {
    const AnalysisSource::Place place{0, rank};
    AddRollUp(v1::RollUp::RANK, "", &place, tally, roll_ups);
  }
  for (const auto& [step, tally] : steps_total) {
    const AnalysisSource::Place place{step, {}};
    AddRollUp(v1::RollUp::STEP, "", &place, tally, roll_ups);
  }
  AddRollUp(v1::RollUp::RUN, "", nullptr, run, roll_ups);
  return send(response) ? absl::OkStatus() : PeerGone();
}

}  // namespace msprobe::server
