#include "server/monitor/golden_run.h"

#include <algorithm>
#include <set>
#include <span>

#include "server/format/tensor_file/tensor_file_name.h"

namespace msprobe::server {

absl::StatusOr<std::optional<GoldenRun::Sessions>> GoldenRun::Find(const StepKey& step) const {
  auto run = store_->catalogue().LookUpRun(name_);
  if (!run.ok()) return run.status();
  if (!run->has_value()) return std::nullopt;
  auto rows = store_->catalogue().Sessions((*run)->number());
  if (!rows.ok()) return rows.status();
  std::set<uint32_t> ranks;
  for (const storage::SessionRow& row : *rows) ranks.insert(RankCode(row.hello().rank()));
  return Sessions{.run = (*run)->number(),
                  .rank = ranks.size() == 1 ? *ranks.begin() : step.rank,  // as the checker pairs them
                  .one_rank = ranks.size() == 1,
                  .rows = *std::move(rows)};
}

absl::StatusOr<GoldenRun::StepState> GoldenRun::StateOf(const StepKey& step) const {
  auto sessions = Find(step);
  if (!sessions.ok()) return sessions.status();
  if (!sessions->has_value()) return StepState::kAwaited;
  auto parts = store_->steps().Of((*sessions)->run, RankOfCode((*sessions)->rank), step.step);
  if (!parts.ok()) return parts.status();
  if (!parts->empty()) {
    const bool ended = std::any_of(parts->begin(), parts->end(),
                                   [](const auto& part) { return part.second.state() != v1::StepSummary::OPEN; });
    return ended ? StepState::kEnded : StepState::kOpen;
  }
  // One that was killed may be started again.
  const bool over = std::all_of((*sessions)->rows.begin(), (*sessions)->rows.end(),
                                [](const auto& row) { return row.state() == storage::SessionRow::ENDED; });
  return over ? StepState::kMissing : StepState::kAwaited;
}

absl::StatusOr<std::map<std::string, bool>> GoldenRun::Have(const StepKey& step,
                                                            const std::vector<std::string>& records) const {
  std::map<std::string, bool> have;
  auto sessions = Find(step);
  if (!sessions.ok()) return sessions.status();
  if (!sessions->has_value()) return have;
  auto source = store_->steps().Open(name_, step.step, RankOfCode((*sessions)->rank));
  if (!source.ok()) return absl::IsNotFound(source.status()) ? have : absl::StatusOr<decltype(have)>(source.status());
  const std::set<std::string> wanted(records.begin(), records.end());
  absl::Status status =
      (*source)->ForEachRecordNamed([&](const std::string& name, uint32_t) { return wanted.contains(name); },
                                    [&](const v1::Record& record, uint64_t) -> absl::Status {
                                      if ((record.flags() & v1::FRAGMENT_EXIT) == 0) return absl::OkStatus();
                                      auto whole = HasPayloads(*store_, record);
                                      if (whole.ok()) have[record.full_name()] = *whole;
                                      return whole.status();
                                    });
  if (!status.ok()) return status;
  return have;
}

absl::StatusOr<std::vector<std::string>> GoldenRun::SessionsFor(const StepKey& step) const {
  std::vector<std::string> found;
  auto sessions = Find(step);
  if (!sessions.ok()) return sessions.status();
  if (!sessions->has_value()) return found;
  for (const storage::SessionRow& row : (*sessions)->rows) {
    if (RankCode(row.hello().rank()) == (*sessions)->rank) found.push_back(row.session());
  }
  return found;
}

absl::StatusOr<bool> GoldenRun::IsForAllRanks() const {
  auto sessions = Find({});
  if (!sessions.ok()) return sessions.status();
  return sessions->has_value() && (*sessions)->one_rank;
}

absl::StatusOr<bool> HasPayloads(const Store& store, const v1::Record& record) {
  bool whole = true;
  absl::Status status = ForEachTensor(record, [&](std::span<const std::string>, const v1::TensorLeaf& leaf) {
    if (!whole || !leaf.has_payload()) return absl::OkStatus();
    auto here = store.payloads().Has(leaf.payload().hash());
    if (here.ok()) whole = *here;
    return here.status();
  });
  if (!status.ok()) return status;
  return whole;
}

}  // namespace msprobe::server
