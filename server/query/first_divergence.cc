#include "server/analysis/first_divergence.h"

#include <fnmatch.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "server/query/analysis_context.h"
#include "server/query/compared_rows.h"
#include "server/query/step_sources.h"

namespace msprobe::server {
namespace {

v1::Divergence Message(const Divergence& found, const StepPair& steps, const PlacePair& pair) {
  const StepTable& target = steps.target->table();
  const StepTable& golden = steps.golden->table();
  const Entry* const ours = found.target_entry < 0 ? nullptr : &target.entries[static_cast<size_t>(found.target_entry)];
  const Entry* const theirs =
      found.golden_entry < 0 ? nullptr : &golden.entries[static_cast<size_t>(found.golden_entry)];
  const Entry& entry = ours != nullptr ? *ours : *theirs;
  v1::Divergence message;
  message.set_op(std::string(entry.name));
  if (ours != nullptr && theirs != nullptr && ours->name != theirs->name) {
    message.set_golden_op(std::string(theirs->name));
  }
  message.set_module(std::string(ModuleOf(entry)));
  message.set_step(pair.target.first);
  *message.mutable_rank() = RankOfPlace(pair.target);
  message.set_token(entry.token);
  message.set_blame(static_cast<v1::Blame>(found.blame));
  message.set_culprit(found.culprit);
  message.set_in_target(ours != nullptr);
  for (const ComparedRow& row : found.rows) {
    FillComparedTensor(target, golden, entry, row, found.contents, pair.target, *message.add_evidence());
  }
  const StepTable& side = ours != nullptr ? target : golden;
  if (entry.stack >= 0) {
    for (const std::string& line : side.stacks[static_cast<size_t>(entry.stack)]) message.add_stack(line);
  }
  message.set_collectives_before(found.collectives_before);
  return message;
}

// Between two collectives ranks run on their own; what a collective brings was wrong before it on another rank.
auto Earliness(const v1::Divergence& divergence) {
  return std::tuple(divergence.collectives_before(), divergence.blame() == v1::BLAME_COMMUNICATION);
}

}  // namespace

absl::Status FirstDivergence(const AnalysisContext& context, const v1::FirstDivergenceRequest& request,
                             const std::function<bool()>& cancelled, const Send<v1::FirstDivergenceResponse>& send) {
  DivergenceOptions options;
  options.ignore_missing = request.ignore_missing();
  options.comparison.mode = static_cast<ComparisonMode>(request.mode());
  options.comparison.content.cancelled = cancelled;
  if (absl::Status status = AddTolerances(request.tolerances(), options.comparison.tolerances); !status.ok()) {
    return status;
  }
  if (!request.scope().name_glob().empty()) {
    options.comparison.wanted = [&request](std::string_view name) {
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
  v1::FirstDivergenceResponse response;
  for (v1::UnpairedStep& lonely : unpaired) {
    *response.mutable_unpaired() = std::move(lonely);
    if (!send(response)) return PeerGone();
  }
  std::optional<v1::Divergence> first;
  uint64_t done = 0;
  for (const PlacePair& pair : *pairs) {
    if (first && first->step() != pair.target.first) break;
    if (cancelled()) return PeerGone();
    constexpr DumpReading kWhole{.stacks = true, .construct = true};
    auto steps = ReadPair(*target, *golden, pair, kWhole, kWhole);
    if (!steps.ok()) return steps.status();
    auto found = FindFirstDivergence(*steps->target, *steps->golden, options);
    if (!found.ok()) return found.status();
    if (*found) {
      *response.mutable_divergence() = Message(**found, *steps, pair);
      if (!first || Earliness(response.divergence()) < Earliness(*first)) first = response.divergence();
      if (!send(response)) return PeerGone();
    }
    response.mutable_progress()->set_steps_done(++done);
    response.mutable_progress()->set_steps_total(pairs->size());
    if (!send(response)) return PeerGone();
  }
  if (!first) return absl::OkStatus();
  first->set_first(true);
  *response.mutable_divergence() = *std::move(first);
  return send(response) ? absl::OkStatus() : PeerGone();
}

}  // namespace msprobe::server
