#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>

#include "msprobe/v1/control.grpc.pb.h"

namespace msprobe::server {

// msprobe.v1.Control.
class ControlService final : public v1::Control::Service {
 public:
  ControlService(std::function<v1::ServerInfo()> info, std::function<void()> drain)
      : info_(std::move(info)), drain_(std::move(drain)) {}

  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*, v1::ServerInfo* response) override {
    *response = info_();
    return grpc::Status::OK;
  }
  grpc::Status Drain(grpc::ServerContext*, const v1::DrainRequest*, v1::DrainResponse*) override {
    drain_();
    return grpc::Status::OK;
  }

 private:
  const std::function<v1::ServerInfo()> info_;
  const std::function<void()> drain_;
};

}  // namespace msprobe::server
