#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/analysis.pb.h"
#include "msprobe/v1/check.pb.h"
#include "server/analysis/series/layer_map.h"
#include "server/analysis/table/table_layouts.h"
#include "server/query/query_context.h"

namespace msprobe::server {

// Everything an analysis uses. Outlives the request.
struct AnalysisContext {
  const Store* store = nullptr;
  Activity* activity = nullptr;
  Metrics* metrics = nullptr;
  TableLayouts* layouts = nullptr;
  bool paths_allowed = false;        // whether Source.path may be read
  std::string spool_directory = {};  // files lie here while they are made
  int threads = 2;
  Peers* peers = nullptr;  // as in QueryContext
  MissingShards* missing = nullptr;
  ExportFormats formats = ExportFormats::Standard();

  Shards shards() const { return {store, peers, missing}; }
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
absl::Status CompareReplicas(const AnalysisContext& context, const v1::ReplicasRequest& request,
                             const std::function<bool()>& cancelled, const Send<v1::ReplicasResponse>& send);
absl::Status Trend(const AnalysisContext& context, const v1::TrendRequest& request,
                   const std::function<bool()>& cancelled, const Send<v1::TrendResponse>& send);
absl::Status Find(const AnalysisContext& context, const v1::FindRequest& request,
                  const std::function<bool()>& cancelled, const Send<v1::FindResponse>& send);
absl::Status Graph(const AnalysisContext& context, const v1::GraphRequest& request,
                   const std::function<bool()>& cancelled, const Send<v1::GraphResponse>& send);
absl::Status WriteTrendDatabase(const AnalysisContext& context, const v1::TrendDatabaseRequest& request,
                                const std::function<bool()>& cancelled, const Send<v1::TrendDatabaseResponse>& send);
absl::Status PreviewTensor(const AnalysisContext& context, const v1::PreviewTensorRequest& request,
                           v1::TensorPreview& response);
absl::Status Measure(const Receive<v1::MeasureRequest>& receive, const Send<v1::MeasureResponse>& send);
absl::Status Judge(const v1::JudgeRequest& request, v1::JudgeResponse& response);

// A question that only the web page asks.
struct LayerMapRequest : LayerMapQuestion {
  std::string run;
  std::string golden;  // empty: values of the run; else its differences from this run
};
// NotFound names the run; other errors are those of MapLayers over tables.
absl::StatusOr<LayerMap> MapLayers(const AnalysisContext& context, const LayerMapRequest& request,
                                   const std::function<bool()>& cancelled,
                                   const std::function<bool(size_t done, size_t total)>& tell);

}  // namespace msprobe::server
