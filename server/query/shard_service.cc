#include "server/query/shard_service.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "server/format/cat.h"
#include "server/ingest/stream/ingest_service.h"
#include "server/monitor/rules/rule_kinds.h"
#include "server/query/answer_query.h"
#include "server/shards/run_parts.h"
#include "server/shards/series_parts.h"
#include "server/shards/shown_steps.h"
#include "server/store/alarms.h"
#include "server/store/block_source.h"

namespace msprobe::server {
namespace {

constexpr int kStepsAMessage = 500;

absl::Status ReadRunHere(const QueryContext& context, const std::string& name, const Send<shards::RunPart>& send) {
  auto run = context.store->catalogue().FindRun(name);
  if (!run.ok()) return run.status();
  auto sessions = context.store->catalogue().Sessions(run->number());
  if (!sessions.ok()) return sessions.status();
  shards::RunPart part;
  part.mutable_summary()->set_run(name);
  part.mutable_summary()->set_pinned(run->pinned());
  part.set_in_use(context.sessions->has_users_in(run->number()));
  std::map<uint32_t, int64_t> opened;
  for (const storage::SessionRow& session : *sessions) {
    opened[session.epoch()] = OpenedUnixUs(session);
    if (session.state() != storage::SessionRow::OPEN) continue;
    part.mutable_summary()->set_open_sessions(part.summary().open_sessions() + 1);
  }
  auto steps = ShownSteps(*context.store, run->number());
  if (!steps.ok()) return steps.status();
  for (ShownStep& shown : *steps) {
    shards::RunPart::Step& step = *part.add_steps();
    step.set_step(shown.key.step);
    step.set_rank(shown.key.rank);
    step.set_epoch(shown.key.epoch);
    step.set_opened_unix_us(opened[shown.key.epoch]);
    step.mutable_earlier_epochs()->Add(shown.earlier_epochs.begin(), shown.earlier_epochs.end());
    step.mutable_row()->Swap(&shown.row);
    if (part.steps_size() < kStepsAMessage) continue;
    if (!send(part)) return PeerGone();
    part.Clear();
  }
  return send(part) ? absl::OkStatus() : PeerGone();
}

class StepSender {
 public:
  StepSender(const BlockSource& source, const Send<shards::StepPart>& send) : source_(source), send_(send) {}

  absl::Status Run() {
    shards::StepPart head;
    *head.mutable_head()->mutable_row() = source_.row();
    *head.mutable_head()->mutable_hello() = source_.hello();
    auto faults = source_.Faults();
    if (!faults.ok()) return faults.status();
    head.mutable_head()->mutable_faults()->Add(faults->begin(), faults->end());
    if (!send_(head)) return PeerGone();
    auto blocks = source_.Blocks();
    if (!blocks.ok()) return blocks.status();
    for (const auto& block : *blocks) {
      if (absl::Status status = SendBlock(*block); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status SendBlock(const v1::Block& block) {
    shards::StepPart part;
    for (uint64_t id : block.structures()) {
      if (!sent_.insert(id).second) continue;
      auto structure = source_.Structure(id);
      if (!structure.ok()) return structure.status();
      part.mutable_definition()->set_structure((*structure)->structure.SerializeAsString());
      part.mutable_definition()->set_id(id);
      if (!send_(part)) return PeerGone();
    }
    for (uint64_t id : block.stacks()) {
      if (!sent_.insert(id).second) continue;
      auto frames = source_.Stack(id);
      if (!frames.ok()) return frames.status();
      v1::Stack stack;
      stack.mutable_frames()->Add(frames->begin(), frames->end());
      part.mutable_definition()->set_stack(stack.SerializeAsString());
      part.mutable_definition()->set_id(id);
      if (!send_(part)) return PeerGone();
    }
    *part.mutable_block() = block;
    return send_(part) ? absl::OkStatus() : PeerGone();
  }

  const BlockSource& source_;
  const Send<shards::StepPart>& send_;
  absl::flat_hash_set<uint64_t> sent_;
};

absl::Status ReadStepHere(const QueryContext& context, const shards::ReadStepRequest& request,
                          const Send<shards::StepPart>& send) {
  auto run = context.store->catalogue().FindRun(request.run());
  if (!run.ok()) return run.status();
  const StepKey key{.run = run->number(), .rank = request.rank(), .step = request.step(), .epoch = request.epoch()};
  auto row = context.store->database().Find<storage::StepRow>(key.Encode());
  if (!row.ok()) return row.status();
  if (!row->has_value()) return absl::NotFoundError(Cat(key.ToString(), " was deleted"));
  auto source = context.store->steps().OpenBlocks(key, **row);
  if (!source.ok()) return source.status();
  return StepSender(**source, send).Run();
}

}  // namespace

grpc::Status ShardService::FindRun(grpc::ServerContext*, const shards::FindRunRequest* request,
                                   shards::FindRunResponse* response) {
  auto row = context_.store->catalogue().LookUpRun(request->run());
  if (!row.ok()) return ToGrpc(row.status());
  response->set_known(row->has_value());
  if (!row->has_value()) return grpc::Status::OK;
  *response->mutable_shards() = (*row)->shards();
  response->set_owner((*row)->owner());
  return grpc::Status::OK;
}

grpc::Status ShardService::PlaceRun(grpc::ServerContext*, const shards::PlaceRunRequest* request,
                                    shards::PlaceRunResponse* response) {
  auto row = context_.store->catalogue().PlaceRun(request->run(), {request->shards().begin(), request->shards().end()},
                                                  request->owner());
  if (!row.ok()) return ToGrpc(row.status());
  *response->mutable_shards() = row->shards();
  response->set_owner(row->owner());
  return grpc::Status::OK;
}

grpc::Status ShardService::ListRuns(grpc::ServerContext*, const shards::ListRunsRequest*,
                                    grpc::ServerWriter<shards::RunPart>* writer) {
  Activity::Scope busy(context_.activity);
  auto parts = RunPartsHere(*context_.store);
  if (!parts.ok()) return ToGrpc(parts.status());
  for (const shards::RunPart& part : *parts) {
    if (!writer->Write(part)) return ToGrpc(PeerGone());
  }
  return grpc::Status::OK;
}

grpc::Status ShardService::ReadRun(grpc::ServerContext*, const shards::ReadRunRequest* request,
                                   grpc::ServerWriter<shards::RunPart>* writer) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(ReadRunHere(context_, request->run(), SendTo(writer)));
}

grpc::Status ShardService::ReadStep(grpc::ServerContext*, const shards::ReadStepRequest* request,
                                    grpc::ServerWriter<shards::StepPart>* writer) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(ReadStepHere(context_, *request, SendTo(writer)));
}

grpc::Status ShardService::ReadPayload(grpc::ServerContext*, const shards::ReadPayloadRequest* request,
                                       grpc::ServerWriter<shards::PayloadPart>* writer) {
  Activity::Scope busy(context_.activity);
  shards::PayloadPart part;
  const auto send = [&](uint64_t offset, std::string_view chunk) {
    part.set_offset(offset);
    part.set_content(std::string(chunk));
    return writer->Write(part) ? absl::OkStatus() : PeerGone();
  };
  if (request->size() > 0) {
    return ToGrpc(context_.store->payloads().ReadRange(request->hash(), request->offset(), request->size(), send));
  }
  uint64_t at = 0;
  return ToGrpc(context_.store->payloads().Read(request->hash(), [&](std::string_view chunk) {
    const uint64_t offset = std::exchange(at, at + chunk.size());
    return send(offset, chunk);
  }));
}

grpc::Status ShardService::ReadSeries(grpc::ServerContext*, const shards::ReadSeriesRequest* request,
                                      grpc::ServerWriter<shards::SeriesPart>* writer) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(SeriesPartsHere(*context_.store, *request,
                                [writer](const shards::SeriesPart& part) { return writer->Write(part); }));
}

grpc::Status ShardService::ListAlarms(grpc::ServerContext*, const shards::ListAlarmsRequest* request,
                                      grpc::ServerWriter<v1::Alarm>* writer) {
  Activity::Scope busy(context_.activity);
  auto run = context_.store->catalogue().FindRun(request->run());
  if (!run.ok()) return ToGrpc(run.status());
  auto alarms = Alarms(&context_.store->database()).Of(run->number());
  if (!alarms.ok()) return ToGrpc(alarms.status());
  for (const v1::Alarm& alarm : *alarms) {
    if (!writer->Write(alarm)) return ToGrpc(PeerGone());
  }
  return grpc::Status::OK;
}

grpc::Status ShardService::SetRules(grpc::ServerContext*, const shards::SetRulesRequest* request,
                                    shards::SetRulesResponse*) {
  Activity::Scope busy(context_.activity);
  // A peer of a later version may know kinds that this one does not.
  if (absl::Status status = CheckRules(request->rules()); !status.ok()) return ToGrpc(status);
  auto run = context_.store->catalogue().FindRun(request->run());
  if (!run.ok()) return ToGrpc(run.status());
  const auto rules = request->has_rules() ? std::optional(request->rules()) : std::nullopt;
  return ToGrpc(Alarms(&context_.store->database()).SetRules(run->number(), rules));
}

grpc::Status ShardService::PinRun(grpc::ServerContext*, const shards::PinRunRequest* request, shards::PinRunResponse*) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(context_.store->catalogue().SetPinned(request->run(), request->pinned()));
}

grpc::Status ShardService::DeleteRun(grpc::ServerContext*, const shards::DeleteRunRequest* request,
                                     shards::DeleteRunResponse* response) {
  Activity::Scope busy(context_.activity);
  v1::DeleteRunRequest asked;
  asked.set_run(request->run());
  v1::DeleteRunResponse deleted;
  const absl::Status status = server::DeleteRun(context_, asked, deleted);
  response->set_row_bytes(deleted.row_bytes());
  response->set_payload_bytes(deleted.payload_bytes());
  return ToGrpc(status);
}

grpc::Status ShardService::ControlRun(grpc::ServerContext* call, const shards::ControlRunRequest* request,
                                      v1::ControlRunResponse* response) {
  Activity::Scope busy(context_.activity);
  return ToGrpc(control_(
      request->asked(), request->asked_by(), [call] { return call->IsCancelled(); }, response));
}

}  // namespace msprobe::server
