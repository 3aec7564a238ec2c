#include "server/shards/peer.h"

#include <fstream>
#include <utility>

#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/shards/peer_blocks.h"

namespace msprobe::server {
namespace {

constexpr absl::Duration kMoment = absl::Seconds(2);
constexpr absl::Duration kWork = absl::Seconds(60);
constexpr absl::Duration kLeftAlone = absl::Seconds(1);

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address,
                                         const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // When a server returns, it is found again within this time.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 250);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

template <typename Message>
PlacedRun PlacedOf(const Message& message) {
  return {ShardList(message.shards().begin(), message.shards().end()), message.owner()};
}

}  // namespace

Peer::Peer(std::string address, const std::shared_ptr<grpc::ChannelCredentials>& credentials, std::string token_file)
    : address_(std::move(address)),
      token_file_(std::move(token_file)),
      stub_(shards::Shards::NewStub(ChannelTo(address_, credentials))) {}

absl::Status Peer::Prepare(grpc::ClientContext& call, absl::Duration patience) {
  {
    absl::MutexLock lock(&mu_);
    if (absl::Now() < gone_until_) return absl::UnavailableError(gone_why_);
  }
  call.set_deadline(absl::ToChronoTime(absl::Now() + patience));
  if (token_file_.empty()) return absl::OkStatus();
  std::ifstream file(token_file_);
  std::string token;
  if (!(file >> token)) return absl::UnavailableError(Cat(address_, ": no token can be read from ", token_file_));
  call.AddMetadata("authorization", "Bearer " + token);
  return absl::OkStatus();
}

absl::Status Peer::Ended(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  switch (status.error_code()) {
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::UNIMPLEMENTED: {
      const std::string why = Cat(address_, ": ", status.error_message());
      // A refusal comes at once, also the next time. Only silence costs time.
      if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
        absl::MutexLock lock(&mu_);
        gone_until_ = absl::Now() + kLeftAlone;
        gone_why_ = why;
      }
      return absl::UnavailableError(why);
    }
    default:
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          Cat(address_, ": ", status.error_message()));
  }
}

template <typename Message, typename Visit>
absl::Status Peer::ReadAll(std::unique_ptr<grpc::ClientReader<Message>> reader, grpc::ClientContext& call,
                           Visit visit) {
  Message message;
  while (reader->Read(&message)) {
    if (absl::Status status = visit(message); !status.ok()) {
      call.TryCancel();
      reader->Finish();
      return status;
    }
  }
  return Ended(reader->Finish());
}

absl::Status Peer::Reach() { return FindRun("").status(); }

absl::StatusOr<std::optional<PlacedRun>> Peer::FindRun(const std::string& run) {
  grpc::ClientContext call;
  if (absl::Status status = Prepare(call, kMoment); !status.ok()) return status;
  shards::FindRunRequest request;
  request.set_run(run);
  shards::FindRunResponse response;
  if (absl::Status status = Ended(stub_->FindRun(&call, request, &response)); !status.ok()) return status;
  if (!response.known()) return std::optional<PlacedRun>();
  return std::optional(PlacedOf(response));
}

absl::StatusOr<PlacedRun> Peer::PlaceRun(const std::string& run, const PlacedRun& placed) {
  grpc::ClientContext call;
  if (absl::Status status = Prepare(call, kMoment); !status.ok()) return status;
  shards::PlaceRunRequest request;
  request.set_run(run);
  request.mutable_shards()->Assign(placed.shards.begin(), placed.shards.end());
  request.set_owner(placed.owner);
  shards::PlaceRunResponse response;
  if (absl::Status status = Ended(stub_->PlaceRun(&call, request, &response)); !status.ok()) return status;
  return PlacedOf(response);
}

absl::Status Peer::ListRuns(VisitPart visit) {
  if (absl::Status status = Reach(); !status.ok()) return status;
  grpc::ClientContext call;
  if (absl::Status status = Prepare(call, kWork); !status.ok()) return status;
  return ReadAll(stub_->ListRuns(&call, {}), call, [&](shards::RunPart& part) {
    visit(part);
    return absl::OkStatus();
  });
}

absl::Status Peer::ReadRun(const std::string& run, VisitPart visit) {
  if (absl::Status status = Reach(); !status.ok()) return status;
  grpc::ClientContext call;
  if (absl::Status status = Prepare(call, kWork); !status.ok()) return status;
  shards::ReadRunRequest request;
  request.set_run(run);
  return ReadAll(stub_->ReadRun(&call, request), call, [&](shards::RunPart& part) {
    visit(part);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::unique_ptr<BlockSource>> Peer::ReadStep(const std::string& run, const StepKey& key) {
  grpc::ClientContext call;
  if (absl::Status status = Prepare(call, kWork); !status.ok()) return status;
  shards::ReadStepRequest request;
  request.set_run(run);
  request.set_step(key.step);
  request.set_rank(key.rank);
  request.set_epoch(key.epoch);
  auto step = std::make_unique<PeerBlocks>(this);
  absl::Status status = ReadAll(stub_->ReadStep(&call, request), call, [&](shards::StepPart& part) {
    step->Add(part);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return step;
}

absl::Status Peer::ReadPayload(std::string_view hash, uint64_t offset, uint64_t size,
                               absl::FunctionRef<absl::Status(uint64_t, std::string_view)> visit) {
  grpc::ClientContext call;
  // No limit of its own: the caller's deadline decides.
  if (absl::Status status = Prepare(call, absl::Hours(1)); !status.ok()) return status;
  shards::ReadPayloadRequest request;
  request.set_hash(std::string(hash));
  request.set_offset(offset);
  request.set_size(size);
  return ReadAll(stub_->ReadPayload(&call, request), call,
                 [&](shards::PayloadPart& part) { return visit(part.offset(), part.content()); });
}

absl::Status Peer::ReadSeries(const shards::ReadSeriesRequest& request,
                              absl::FunctionRef<bool(const shards::SeriesPart& part)> visit) {
  grpc::ClientContext call;
  if (absl::Status status = Prepare(call, kWork); !status.ok()) return status;
  return ReadAll(stub_->ReadSeries(&call, request), call, [&](shards::SeriesPart& part) {
    return visit(part) ? absl::OkStatus() : absl::CancelledError("nobody listens any more");
  });
}

absl::Status Peer::ListAlarms(const std::string& run, absl::FunctionRef<bool(const v1::Alarm& alarm)> visit) {
  grpc::ClientContext call;
  if (absl::Status status = Prepare(call, kWork); !status.ok()) return status;
  shards::ListAlarmsRequest request;
  request.set_run(run);
  return ReadAll(stub_->ListAlarms(&call, request), call, [&](v1::Alarm& alarm) {
    return visit(alarm) ? absl::OkStatus() : absl::CancelledError("nobody listens any more");
  });
}

absl::Status Peer::SetRules(const std::string& run, const v1::RuleSet* rules) {
  grpc::ClientContext call;
  if (absl::Status status = Prepare(call, kWork); !status.ok()) return status;
  shards::SetRulesRequest request;
  request.set_run(run);
  if (rules != nullptr) *request.mutable_rules() = *rules;
  shards::SetRulesResponse response;
  return Ended(stub_->SetRules(&call, request, &response));
}

absl::Status Peer::PinRun(const std::string& run, bool pinned) {
  grpc::ClientContext call;
  if (absl::Status status = Prepare(call, kWork); !status.ok()) return status;
  shards::PinRunRequest request;
  request.set_run(run);
  request.set_pinned(pinned);
  shards::PinRunResponse response;
  return Ended(stub_->PinRun(&call, request, &response));
}

absl::StatusOr<shards::DeleteRunResponse> Peer::DeleteRun(const std::string& run) {
  grpc::ClientContext call;
  if (absl::Status status = Prepare(call, kWork); !status.ok()) return status;
  shards::DeleteRunRequest request;
  request.set_run(run);
  shards::DeleteRunResponse response;
  if (absl::Status status = Ended(stub_->DeleteRun(&call, request, &response)); !status.ok()) return status;
  return response;
}

absl::StatusOr<v1::ControlRunResponse> Peer::ControlRun(const v1::ControlRunRequest& asked,
                                                        const std::string& asked_by) {
  grpc::ClientContext call;
  if (absl::Status status = Prepare(call, kWork); !status.ok()) return status;
  shards::ControlRunRequest request;
  *request.mutable_asked() = asked;
  request.set_asked_by(asked_by);
  v1::ControlRunResponse response;
  if (absl::Status status = Ended(stub_->ControlRun(&call, request, &response)); !status.ok()) return status;
  return response;
}

}  // namespace msprobe::server
