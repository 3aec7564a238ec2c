#include <string>
#include <utility>

#include "server/analysis/compat/mindstudio_comparison.h"
#include "server/query/analysis_context.h"
#include "server/query/analysis_request.h"
#include "server/query/opened_source.h"

namespace msprobe::server {
namespace {

TrainingBackend BackendOf(const v1::CompareTableRequest& request) {
  switch (request.training_backend()) {
    case v1::CompareTableRequest::TRAINING_BACKEND_FSDP:
      return TrainingBackend::kFsdp;
    case v1::CompareTableRequest::TRAINING_BACKEND_MEGATRON:
      return TrainingBackend::kMegatron;
    default:
      return TrainingBackend::kNone;
  }
}

// Before rows are taken away from the table.
void AddMessages(const StepTable& table, google::protobuf::RepeatedPtrField<v1::PointToPoint>& messages) {
  for (const PointToPoint& each : table.messages) {
    v1::PointToPoint& message = *messages.Add();
    message.set_name(std::string(table.rows[each.row].name));
    message.set_op(std::string(each.op));
    message.set_peer(each.peer);
  }
}

absl::Status SendTable(const CompareOptions& options, TrainingBackend backend, const PlacePair& pair, StepPair& steps,
                       const Send<v1::TableChunk>& send) {
  v1::TableChunk chunk;
  chunk.set_step(pair.target.first);
  *chunk.mutable_rank() = RankOfPlace(pair.target);
  // The table that aligns a training step with an inference step is no debug.json.
  chunk.set_debug(backend == TrainingBackend::kNone && steps.target->table().debug);
  v1::TableChunk last = chunk;
  AddMessages(steps.target->table(), *last.mutable_target_messages());
  AddMessages(steps.golden->table(), *last.mutable_golden_messages());
  auto counts = WriteMindstudioComparison(options, backend, steps, [&](std::string& content) -> absl::Status {
    chunk.mutable_content()->swap(content);
    return send(chunk) ? absl::OkStatus() : PeerGone();
  });
  if (!counts.ok()) return counts.status();
  last.set_last(true);
  last.set_rows(counts->rows);
  last.set_warnings(counts->warnings);
  last.set_errors(counts->errors);
  last.set_target_only(counts->target_only);
  return send(last) ? absl::OkStatus() : PeerGone();
}

}  // namespace

absl::Status CompareTable(const AnalysisContext& context, const v1::CompareTableRequest& request,
                          const std::function<bool()>& cancelled, const Send<v1::TableChunk>& send) {
  auto target = OpenedSource::Open(request.target(), context);
  if (!target.ok()) return target.status();
  auto golden = OpenedSource::Open(request.golden(), context);
  if (!golden.ok()) return golden.status();
  std::vector<UnpairedPlace> unpaired;
  auto pairs = PairPlaces(*target, *golden, ScopeOf(request.scope()), unpaired);
  if (!pairs.ok()) return pairs.status();
  auto options = CompareOptionsOf(OptionsIn(request), request.scope().name_glob());
  if (!options.ok()) return options.status();
  options->content.threads = context.threads;
  options->content.cancelled = cancelled;
  const bool layers = !options->mapping.layers.empty();
  for (const PlacePair& pair : *pairs) {
    if (cancelled()) return PeerGone();
    auto steps = ReadPair(*target, *golden, pair, {.stacks = true, .construct = layers},
                          {.stacks = layers, .construct = layers});
    if (!steps.ok()) return steps.status();
    if (absl::Status status = SendTable(*options, BackendOf(request), pair, *steps, send); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
