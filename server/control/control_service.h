#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>

#include <string>
#include <utility>

#include "msprobe/v1/control.grpc.pb.h"
#include "server/control/backup.h"
#include "server/ingest/ingest_service.h"

namespace msprobe::server {

// msprobe.v1.Control.
class ControlService final : public v1::Control::Service {
 public:
  // `scratch`: where backups lie while they are sent.
  ControlService(std::function<v1::ServerInfo()> info, std::function<void()> drain, Store* store, std::string scratch)
      : info_(std::move(info)), drain_(std::move(drain)), store_(store), scratch_(std::move(scratch)) {}

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*, v1::ServerInfo* response) override {
    *response = info_();
    return grpc::Status::OK;
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest*, v1::DrainResponse*) override {
    drain_();
    return grpc::Status::OK;
  }
  grpc::Status PinRun(grpc::ServerContext*, const v1::PinRunRequest* request, v1::PinRunResponse*) override {
    return ToGrpc(store_->SetPinned(request->run(), request->pinned()));
  }
  grpc::Status Backup(grpc::ServerContext*, const v1::BackupRequest*,
                      grpc::ServerWriter<v1::BackupChunk>* writer) override {
    return ToGrpc(
        SendBackup(*store_, scratch_, [writer](const v1::BackupChunk& chunk) { return writer->Write(chunk); }));
  }

 private:
  const std::function<v1::ServerInfo()> info_;
  const std::function<void()> drain_;
  Store* const store_;
  const std::string scratch_;
};

}  // namespace msprobe::server
