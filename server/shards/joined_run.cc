#include "server/shards/joined_run.h"

#include <algorithm>
#include <utility>

namespace msprobe::server {

void JoinedRun::Add(const shards::RunPart& part) {
  const v1::RunSummary& one = part.summary();
  if (parts_++ == 0) {
    sum_ = one;
  } else {
    sum_.set_created_unix_us(std::min(sum_.created_unix_us(), one.created_unix_us()));
    sum_.set_pinned(sum_.pinned() || one.pinned());
    if (sum_.owner().empty()) sum_.set_owner(one.owner());
    sum_.set_records(sum_.records() + one.records());
    sum_.set_tensors(sum_.tensors() + one.tensors());
    sum_.set_nan_tensors(sum_.nan_tensors() + one.nan_tensors());
    sum_.set_inf_tensors(sum_.inf_tensors() + one.inf_tensors());
    sum_.set_row_bytes(sum_.row_bytes() + one.row_bytes());
    sum_.set_payload_bytes(sum_.payload_bytes() + one.payload_bytes());
    sum_.set_open_sessions(sum_.open_sessions() + one.open_sessions());
    if (part.latest_opened_unix_us() > latest_) *sum_.mutable_settings() = one.settings();
  }
  latest_ = std::max(latest_, part.latest_opened_unix_us());
  steps_.insert(part.step_numbers().begin(), part.step_numbers().end());
  for (const v1::Rank& rank : one.ranks()) overlaps_ |= !ranks_.insert(RankCode(rank)).second;
}

absl::StatusOr<v1::RunSummary> JoinedRun::Sum(const Shards& shards) && {
  sum_.set_steps(static_cast<uint32_t>(steps_.size()));
  sum_.clear_ranks();
  for (uint32_t rank : ranks_) *sum_.add_ranks() = RankOfCode(rank);
  if (!overlaps_) return std::move(sum_);
  auto view = RunView::Open(shards, sum_.run());
  if (!view.ok()) return view.status();
  uint64_t records = 0, tensors = 0, nan = 0, inf = 0;
  for (const ShownStep& step : view->steps()) {
    records += step.row.records();
    tensors += step.row.tensors();
    nan += step.row.nan_tensors();
    inf += step.row.inf_tensors();
  }
  sum_.set_records(records);
  sum_.set_tensors(tensors);
  sum_.set_nan_tensors(nan);
  sum_.set_inf_tensors(inf);
  return std::move(sum_);
}

}  // namespace msprobe::server
