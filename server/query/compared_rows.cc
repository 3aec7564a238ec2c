#include "server/query/compared_rows.h"

#include <string>

#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"
#include "server/query/exact_number.h"
#include "server/query/opened_source.h"

namespace msprobe::server {

void FillElementMetrics(const ElementwiseMetrics& metrics, v1::ElementMetrics& out) {
  out.set_elements(metrics.elements);
  out.set_compared(metrics.compared);
  out.set_different(metrics.different);
  out.set_over_tolerance(metrics.over_tolerance);
  out.set_nan_mismatches(metrics.non_finite.nan);
  out.set_inf_mismatches(metrics.non_finite.inf);
  out.set_inf_sign_mismatches(metrics.non_finite.inf_sign);
  if (metrics.non_finite.first_mismatch) out.set_first_non_finite_mismatch(*metrics.non_finite.first_mismatch);
  out.set_max_abs(metrics.absolute.max);
  out.set_mean_abs(metrics.absolute.mean);
  out.set_rms_abs(metrics.absolute.rms);
  out.set_max_rel(metrics.relative.max);
  out.set_mean_rel(metrics.relative.mean);
  out.set_rms_rel(metrics.relative.rms);
  out.set_share_under_1e2(metrics.relative.share_under[0]);
  out.set_share_under_5e3(metrics.relative.share_under[1]);
  out.set_share_under_1e3(metrics.relative.share_under[2]);
  out.set_share_under_1e4(metrics.relative.share_under[3]);
  out.set_cosine(metrics.cosine);
  out.set_euclidean(metrics.euclidean);
  if (metrics.ulp) {
    out.set_ulp_max(metrics.ulp->max);
    out.set_ulp_mean(metrics.ulp->mean);
    out.set_ulp_share_over(metrics.ulp->share_over);
  }
  out.set_abs_p50(metrics.absolute.percentiles[0]);
  out.set_abs_p90(metrics.absolute.percentiles[1]);
  out.set_abs_p99(metrics.absolute.percentiles[2]);
  out.set_abs_p999(metrics.absolute.percentiles[3]);
  out.set_worst_index(metrics.worst.index);
  out.set_worst_target(metrics.worst.target.number());
  out.set_worst_golden(metrics.worst.golden.number());
}

namespace {

void FillScalar(const Row& row, v1::Scalar& out) {
  out.set_type(std::string(row.type));
  const Cell& cell = row.statistics[0];
  if (!row.said.empty()) {
    out.set_text(std::string(row.said));
  } else if (cell.kind == Cell::Kind::kBoolean) {
    out.set_boolean(cell.integer != 0);
  } else if (cell.kind == Cell::Kind::kInteger) {
    out.set_integer(cell.integer);
  } else if (cell.kind == Cell::Kind::kUnsigned) {
    out.set_text(Cat(cell.unsigned_integer));
  } else if (cell.kind == Cell::Kind::kReal) {
    out.set_real(cell.real);
  } else if (cell.kind == Cell::Kind::kText) {
    out.set_text(std::string(cell.view()));
  }
}

}  // namespace

void FillComparedTensor(const StepTable& target, const StepTable& golden, const Entry& entry, const ComparedRow& row,
                        const std::vector<ContentResult>& contents, const StepTables::Place& place,
                        v1::ComparedTensor& out) {
  const Row* const a = row.target == kNoRow ? nullptr : &target.rows[static_cast<size_t>(row.target)];
  const Row* const b = row.golden == kNoRow ? nullptr : &golden.rows[static_cast<size_t>(row.golden)];
  const auto text = [](std::string_view view) { return std::string(view); };
  out.set_name(text((a != nullptr ? a : b)->name));
  if (a != nullptr && b != nullptr && a->name != b->name) out.set_golden_name(text(b->name));
  out.set_step(place.first);
  *out.mutable_rank() = RankOfPlace(place);
  out.set_token(entry.token);
  out.set_module(text(ModuleOf(entry)));
  out.set_verdict(static_cast<v1::RowVerdict>(row.verdict));
  out.set_basis(static_cast<v1::VerdictBasis>(row.basis));
  if (a != nullptr) {
    out.set_target_dtype(text(target.text(a->dtype)));
    out.set_target_shape(text(target.text(a->shape)));
    if (!a->is_tensor) FillScalar(*a, *out.mutable_target_scalar());
  }
  if (b != nullptr) {
    out.set_golden_dtype(text(golden.text(b->dtype)));
    out.set_golden_shape(text(golden.text(b->shape)));
    if (!b->is_tensor) FillScalar(*b, *out.mutable_golden_scalar());
  }
  const auto layout = [](const StepTable& table, int32_t at) {
    return at == kNoRow || table.layouts.empty() ? std::string() : table.layouts[static_cast<size_t>(at)];
  };
  out.set_layout(layout(target, row.target));
  if (out.layout().empty()) out.set_layout(layout(golden, row.golden));
  out.set_excess(row.excess);
  out.set_statistic(text(row.statistic));
  out.set_target_value(row.target_value.number());
  out.set_golden_value(row.golden_value.number());
  if (auto exact = ExactNumber(row.target_value)) *out.mutable_exact_target_value() = *exact;
  if (auto exact = ExactNumber(row.golden_value)) *out.mutable_exact_golden_value() = *exact;
  if (row.content < 0 || static_cast<size_t>(row.content) >= contents.size()) return;
  const ContentResult& content = contents[static_cast<size_t>(row.content)];
  if (row.basis == Basis::kContent && content.kind == ContentResult::Kind::kCompared) {
    FillElementMetrics(content.metrics, *out.mutable_metrics());
  }
  out.set_message(content.message);
}

v1::UnpairedStep UnpairedMessage(const UnpairedPlace& unpaired) {
  v1::UnpairedStep message;
  message.set_in_target(unpaired.in_target);
  message.set_step(unpaired.place.first);
  *message.mutable_rank() = RankOfPlace(unpaired.place);
  return message;
}

}  // namespace msprobe::server
