#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>

#include <string>
#include <utility>

#include "msprobe/v1/control.grpc.pb.h"
#include "server/control/run_control.h"
#include "server/ingest/stream/ingest_service.h"
#include "server/maintenance/backup.h"
#include "server/shards/peers.h"

namespace msprobe::server {

// Pins or unpins the run on all servers that have it. NotFound: none has it. Unavailable: some servers could not be
// told; the call may be repeated.
absl::Status PinRun(Catalogue& catalogue, Peers* peers, const std::string& run, bool pinned);
// Adds the state of the cluster's servers to `info`. Adds nothing if this server is alone.
void DescribeShards(Peers* peers, v1::ServerInfo& info);

// Implements msprobe.v1.Control. Threads: any. Borrowed objects outlive it.
class ControlService final : public v1::Control::Service {
 public:
  // `scratch`: directory for backups while they are sent. `bearer` gives the name behind an authorization header; may
  // be empty. `peers` null: this server is alone.
  ControlService(std::function<v1::ServerInfo()> info, std::function<void()> drain, Store* store, std::string scratch,
                 RunControl* runs, std::function<std::string(std::string_view)> bearer, Peers* peers = nullptr)
      : info_(std::move(info)),
        drain_(std::move(drain)),
        store_(store),
        scratch_(std::move(scratch)),
        runs_(runs),
        bearer_(std::move(bearer)),
        peers_(peers) {}

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*, v1::ServerInfo* response) override {
    *response = info_();
    return grpc::Status::OK;
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest*, v1::DrainResponse*) override {
    drain_();
    return grpc::Status::OK;
  }
  grpc::Status PinRun(grpc::ServerContext*, const v1::PinRunRequest* request, v1::PinRunResponse*) override {
    return ToGrpc(server::PinRun(store_->catalogue(), peers_, request->run(), request->pinned()));
  }
  grpc::Status Backup(grpc::ServerContext*, const v1::BackupRequest*,
                      grpc::ServerWriter<v1::BackupChunk>* writer) override {
    return ToGrpc(
        SendBackup(*store_, scratch_, [writer](const v1::BackupChunk& chunk) { return writer->Write(chunk); }));
  }
  grpc::Status ControlRun(grpc::ServerContext* context, const v1::ControlRunRequest* request,
                          v1::ControlRunResponse* response) override;

 private:
  // The bearer of the token and the user that the client names; without both, the caller's address.
  std::string AskedBy(const grpc::ServerContext& context, const v1::ControlRunRequest& request) const {
    const auto header = context.client_metadata().find("authorization");
    std::string who;
    if (bearer_ && header != context.client_metadata().end()) {
      who = bearer_(std::string_view(header->second.data(), header->second.size()));
    }
    const std::string& said = request.command().asked_by();
    if (!said.empty()) who += (who.empty() ? "" : ", ") + said;
    return who.empty() ? context.peer() : who;
  }

  const std::function<v1::ServerInfo()> info_;
  const std::function<void()> drain_;
  Store* const store_;
  const std::string scratch_;
  RunControl* const runs_;
  const std::function<std::string(std::string_view)> bearer_;
  Peers* const peers_;  // null: this server is alone
};

}  // namespace msprobe::server
