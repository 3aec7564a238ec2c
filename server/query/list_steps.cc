#include "server/query/query_context.h"
#include "server/shards/shown_steps.h"

namespace msprobe::server {
namespace {

// Adds the spans of the request that was asked for. False: the step holds none.
bool AddSpans(const v1::ListStepsRequest& request, const storage::StepRow& row, v1::StepSummary& summary) {
  for (const v1::Marker::TokenSpan& span : row.token_spans()) {
    if (span.request() != request.request()) continue;
    if (request.has_position() &&
        (request.position() < span.first_position() || request.position() > span.last_position())) {
      continue;
    }
    *summary.add_token_spans() = span;
  }
  return summary.token_spans_size() > 0;
}

}  // namespace

absl::Status ListSteps(const QueryContext& context, const v1::ListStepsRequest& request,
                       const Send<v1::StepSummary>& send) {
  if (request.has_position() && request.request().empty()) {
    return absl::InvalidArgumentError("ListSteps has a position but no request whose position it is");
  }
  auto view = RunView::Open(context.shards(), request.run());
  if (!view.ok()) return view.status();
  for (const ShownStep& step : view->steps()) {
    v1::StepSummary summary;
    if (!request.request().empty() && !AddSpans(request, step.row, summary)) continue;
    summary.set_step(step.key.step);
    *summary.mutable_rank() = RankOfCode(step.key.rank);
    summary.set_state(step.row.state());
    summary.set_records(step.row.records());
    summary.set_tensors(step.row.tensors());
    summary.set_nan_tensors(step.row.nan_tensors());
    summary.set_inf_tensors(step.row.inf_tensors());
    summary.set_tokens(step.row.tokens());
    summary.set_row_bytes(step.row.row_bytes());
    summary.set_payload_bytes(step.row.payload_bytes());
    *summary.mutable_gaps() = step.row.gaps();
    summary.set_epoch(step.key.epoch);
    summary.mutable_earlier_epochs()->Add(step.earlier_epochs.begin(), step.earlier_epochs.end());
    summary.set_faults(step.row.faults());
    if (!send(summary)) return PeerGone();
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
