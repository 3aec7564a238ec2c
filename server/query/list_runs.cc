#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "server/query/query_context.h"
#include "server/query/run_parts.h"
#include "server/query/run_view.h"

namespace msprobe::server {
namespace {

// One run of several servers.
class JoinedRun {
 public:
  void Add(const shards::RunPart& part) {
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

  absl::StatusOr<v1::RunSummary> Sum(const Shards& shards) {
    sum_.set_steps(static_cast<uint32_t>(steps_.size()));
    sum_.clear_ranks();
    for (uint32_t rank : ranks_) *sum_.add_ranks() = RankOfCode(rank);
    if (!overlaps_) return sum_;
    // Two servers have steps of one rank, of which one is shown.
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
    return sum_;
  }

 private:
  int parts_ = 0;
  v1::RunSummary sum_;
  int64_t latest_ = 0;
  std::set<uint32_t> steps_, ranks_;
  bool overlaps_ = false;
};

}  // namespace

absl::Status ListRuns(const QueryContext& context, v1::ListRunsResponse& response) {
  auto here = RunPartsHere(*context.store);
  if (!here.ok()) return here.status();
  if (context.peers == nullptr) {
    for (shards::RunPart& part : *here) response.add_runs()->Swap(part.mutable_summary());
    return absl::OkStatus();
  }
  std::map<std::string, JoinedRun> runs;
  for (const shards::RunPart& part : *here) runs[part.summary().run()].Add(part);
  using Parts = absl::StatusOr<std::vector<shards::RunPart>>;
  const std::vector<Peer*> others = context.peers->Others(context.peers->shards());
  const std::vector<Parts> answers = Peers::AskAll<Parts>(others, [](Peer& peer) -> Parts {
    std::vector<shards::RunPart> parts;
    absl::Status status = peer.ListRuns([&](shards::RunPart& part) { parts.emplace_back().Swap(&part); });
    if (!status.ok()) return status;
    return parts;
  });
  for (size_t i = 0; i < others.size(); ++i) {
    if (absl::IsUnavailable(answers[i].status())) {
      v1::MissingShard missing;
      missing.set_shard(others[i]->address());
      missing.set_why(std::string(answers[i].status().message()));
      context.missing->Add(std::move(missing));
      continue;
    }
    if (!answers[i].ok()) return answers[i].status();
    for (const shards::RunPart& part : *answers[i]) runs[part.summary().run()].Add(part);
  }
  std::vector<v1::RunSummary> sums;
  for (auto& [name, run] : runs) {
    auto sum = run.Sum(context.shards());
    if (!sum.ok()) return sum.status();
    sums.push_back(*std::move(sum));
  }
  // As each server numbers them: in the order in which they were made.
  std::stable_sort(sums.begin(), sums.end(), [](const v1::RunSummary& a, const v1::RunSummary& b) {
    return a.created_unix_us() < b.created_unix_us();
  });
  for (v1::RunSummary& sum : sums) response.add_runs()->Swap(&sum);
  return absl::OkStatus();
}

}  // namespace msprobe::server
