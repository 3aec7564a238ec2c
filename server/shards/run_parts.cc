#include "server/shards/run_parts.h"

#include <set>

#include "server/shards/shown_steps.h"
#include "server/store/session_order.h"

namespace msprobe::server {

absl::StatusOr<std::vector<shards::RunPart>> RunPartsHere(const Store& store) {
  auto runs = store.catalogue().Runs();
  if (!runs.ok()) return runs.status();
  auto sessions = store.catalogue().Sessions();
  if (!sessions.ok()) return sessions.status();
  std::vector<shards::RunPart> parts;
  for (const storage::RunRow& run : *runs) {
    shards::RunPart& part = parts.emplace_back();
    v1::RunSummary& summary = *part.mutable_summary();
    summary.set_run(run.name());
    summary.set_created_unix_us(run.created_unix_us());
    summary.set_pinned(run.pinned());
    summary.set_owner(run.owner());
    std::set<uint32_t> ranks, steps;
    auto all = store.steps().Of(run.number());
    if (!all.ok()) return all.status();
    for (const auto& [key, row] : *all) summary.set_row_bytes(summary.row_bytes() + row.row_bytes());
    auto shown = ShownSteps(store, run.number());
    if (!shown.ok()) return shown.status();
    for (const ShownStep& step : *shown) {
      ranks.insert(step.key.rank);
      steps.insert(step.key.step);
      summary.set_records(summary.records() + step.row.records());
      summary.set_tensors(summary.tensors() + step.row.tensors());
      summary.set_nan_tensors(summary.nan_tensors() + step.row.nan_tensors());
      summary.set_inf_tensors(summary.inf_tensors() + step.row.inf_tensors());
    }
    summary.set_steps(static_cast<uint32_t>(steps.size()));
    part.mutable_step_numbers()->Assign(steps.begin(), steps.end());
    for (uint32_t rank : ranks) *summary.add_ranks() = RankOfCode(rank);
    auto payload_bytes = store.payloads().ReferencedBytes(run.number());
    if (!payload_bytes.ok()) return payload_bytes.status();
    summary.set_payload_bytes(*payload_bytes);
    const storage::SessionRow* latest = nullptr;
    for (const storage::SessionRow& session : *sessions) {
      if (session.run() != run.number()) continue;
      if (session.state() == storage::SessionRow::OPEN) summary.set_open_sessions(summary.open_sessions() + 1);
      if (latest == nullptr || BeganLater(session, *latest)) latest = &session;
    }
    if (latest != nullptr) {
      *summary.mutable_settings() = latest->hello().settings();
      part.set_latest_opened_unix_us(OpenedUnixUs(*latest));
    }
  }
  return parts;
}

}  // namespace msprobe::server
