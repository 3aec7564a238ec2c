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
// Threads: any. Calls block. Unavailable, with the server's address: it cannot be reached, does not answer (2 s for
// what asks no more than whether it is there, 60 s for more), or refuses this server's token; nothing else is
// Unavailable. For a second after that, calls fail at once.
class Peer {
 public:
  // `token_file`: read at every call; empty: no token is shown.
  Peer(std::string address, const std::shared_ptr<grpc::ChannelCredentials>& credentials, std::string token_file);

  const std::string& address() const { return address_; }

  absl::Status Reach();
  // Nothing: it has no such run.
  absl::StatusOr<std::optional<PlacedRun>> FindRun(const std::string& run);
  // As the run is placed then, which another may have done before.
  absl::StatusOr<PlacedRun> PlaceRun(const std::string& run, const PlacedRun& placed);

  using VisitPart = absl::FunctionRef<void(shards::RunPart& part)>;
  absl::Status ListRuns(VisitPart visit);
  absl::Status ReadRun(const std::string& run, VisitPart visit);  // NotFound: there is none
  // The step, whole but for its payloads. The peer outlives the origin.
  absl::StatusOr<std::unique_ptr<BlockSource>> ReadStep(const std::string& run, const StepKey& key);
  absl::Status ReadPayload(std::string_view hash, uint64_t offset, uint64_t size,
                           absl::FunctionRef<absl::Status(uint64_t offset, std::string_view chunk)> visit);
  absl::Status PinRun(const std::string& run, bool pinned);
  absl::StatusOr<shards::DeleteRunResponse> DeleteRun(const std::string& run);
  absl::StatusOr<v1::ControlRunResponse> ControlRun(const v1::ControlRunRequest& asked, const std::string& asked_by);

 private:
  // What a call goes with. Unavailable: it was not reached a moment ago, or there is no token.
  absl::Status Prepare(grpc::ClientContext& call, absl::Duration patience);
  // The status of a call as ours.
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
