#pragma once

#include <functional>

#include "absl/status/status.h"
#include "msprobe/v1/analysis.pb.h"
#include "server/query/query_context.h"

namespace msprobe::server {

// What an analysis needs besides: whether paths of this machine may be read, and whether its client still waits.
struct AnalysisContext {
  const Store* store = nullptr;
  Activity* activity = nullptr;
  bool paths_allowed = false;
  int threads = 2;
};

// One file each. `cancelled` may be called from any thread.
absl::Status Compare(const AnalysisContext& context, const v1::CompareRequest& request,
                     const std::function<bool()>& cancelled, const Send<v1::CompareResponse>& send);
absl::Status CompareTable(const AnalysisContext& context, const v1::CompareTableRequest& request,
                          const std::function<bool()>& cancelled, const Send<v1::TableChunk>& send);
absl::Status FirstDivergence(const AnalysisContext& context, const v1::FirstDivergenceRequest& request,
                             const std::function<bool()>& cancelled, const Send<v1::FirstDivergenceResponse>& send);
absl::Status Overflow(const AnalysisContext& context, const v1::OverflowRequest& request,
                      const std::function<bool()>& cancelled, const Send<v1::OverflowResponse>& send);

}  // namespace msprobe::server
