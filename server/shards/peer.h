#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/shards/shard_list.h"
#include "server/shards/shards.grpc.pb.h"
#include "server/store/block_source.h"

namespace msprobe::server {

// Another server of the cluster.
//
// Calls block. Unavailable, with the server's address, means that the server cannot be reached, does not answer in time
// (2 s for calls that only ask whether it is there, 60 s for others), or refuses this server's token, and nothing else.
// For one second after a call without an answer, further calls fail at once.
// Threads: any.
class Peer {
 public:
  // `token_file`: read for every call; empty: no token is shown.
  Peer(std::string address, const std::shared_ptr<grpc::ChannelCredentials>& credentials, std::string token_file);

  const std::string& address() const { return address_; }

  absl::Status Reach();
  // nullopt: the server does not have the run.
  absl::StatusOr<std::optional<PlacedRun>> FindRun(const std::string& run);
  // Returns where the run is placed now. Another server may have placed it before.
  absl::StatusOr<PlacedRun> PlaceRun(const std::string& run, const PlacedRun& placed);

  using VisitPart = absl::FunctionRef<void(shards::RunPart& part)>;
  absl::Status ListRuns(VisitPart visit);
  absl::Status ReadRun(const std::string& run, VisitPart visit);  // NotFound: the server does not have the run
  // The whole step, except that payloads are read later. The peer outlives the result.
  absl::StatusOr<std::unique_ptr<BlockSource>> ReadStep(const std::string& run, const StepKey& key);
  // `visit` returns false to stop, which is Cancelled.
  absl::Status ReadSeries(const shards::ReadSeriesRequest& request,
                          absl::FunctionRef<bool(const shards::SeriesPart& part)> visit);
  absl::Status ReadPayload(std::string_view hash, uint64_t offset, uint64_t size,
                           absl::FunctionRef<absl::Status(uint64_t offset, std::string_view chunk)> visit);
  absl::Status ListAlarms(const std::string& run, absl::FunctionRef<bool(const v1::Alarm& alarm)> visit);
  // rules: null: the server's.
  absl::Status SetRules(const std::string& run, const v1::RuleSet* rules);
  absl::Status PinRun(const std::string& run, bool pinned);
  absl::StatusOr<shards::DeleteRunResponse> DeleteRun(const std::string& run);
  absl::StatusOr<v1::ControlRunResponse> ControlRun(const v1::ControlRunRequest& asked, const std::string& asked_by);

 private:
  // Sets the deadline and the token. Unavailable: the server was not reachable a moment ago, or there is no token.
  absl::Status Prepare(grpc::ClientContext& call, absl::Duration patience);
  // Translates the final status of a call.
  absl::Status Ended(const grpc::Status& status);
  template <typename Message, typename Visit>
  absl::Status ReadAll(std::unique_ptr<grpc::ClientReader<Message>> reader, grpc::ClientContext& call, Visit visit);

  const std::string address_;
  const std::string token_file_;
  const std::unique_ptr<shards::Shards::Stub> stub_;
  absl::Mutex mu_;
  absl::Time gone_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  std::string gone_why_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::server
