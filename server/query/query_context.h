#pragma once

#include <functional>
#include <string>

#include "msprobe/v1/monitor.pb.h"
#include "server/exporter/export_formats.h"
#include "server/ingest/session/sessions.h"
#include "server/metrics/activity.h"
#include "server/metrics/metrics.h"
#include "server/shards/run_view.h"
#include "server/store/store.h"

namespace msprobe::server {

class JobQueue;

// Everything a request uses. Outlives the request.
struct QueryContext {
  Store* store = nullptr;
  Sessions* sessions = nullptr;
  Metrics* metrics = nullptr;
  Activity* activity = nullptr;
  std::string spool_directory;  // uploads lie here while they are read
  Peers* peers = nullptr;       // null: this server is alone
  ExportFormats formats = ExportFormats::Standard();
  // Takes the servers that this request could not ask. Not null where peers is not.
  MissingShards* missing = nullptr;
  JobQueue* jobs = nullptr;  // null: this server has none

  Shards shards() const { return {store, peers, missing}; }
};

// Streams of answers, without gRPC: false means that the peer is gone.
template <typename Message>
using Send = std::function<bool(const Message&)>;
template <typename Message>
using Receive = std::function<bool(Message&)>;

// One file each.
absl::Status ListRuns(const QueryContext& context, v1::ListRunsResponse& response);
absl::Status ListSteps(const QueryContext& context, const v1::ListStepsRequest& request,
                       const Send<v1::StepSummary>& send);
absl::Status ReadRecords(const QueryContext& context, const v1::ReadRecordsRequest& request,
                         const Send<v1::Record>& send);
absl::Status ReadTensor(const QueryContext& context, const v1::ReadTensorRequest& request,
                        const Send<v1::FileChunk>& send);
absl::Status Export(const QueryContext& context, const v1::ExportRequest& request,
                    const std::function<bool()>& cancelled, const Send<v1::FileChunk>& send);
absl::Status Import(const QueryContext& context, const Caller& caller, const Receive<v1::ImportChunk>& receive,
                    v1::ImportResponse& response);
absl::Status ReadSeries(const QueryContext& context, const v1::ReadSeriesRequest& request,
                        const Send<v1::Series>& send);
// follow: until no session of the run is open.
absl::Status ListAlarms(const QueryContext& context, const v1::ListAlarmsRequest& request,
                        const std::function<bool()>& cancelled, const Send<v1::Alarm>& send);
absl::Status DeleteRun(const QueryContext& context, const v1::DeleteRunRequest& request,
                       v1::DeleteRunResponse& response);

// Cancelled: what a handler answers when nobody listens any more.
inline absl::Status PeerGone() { return absl::CancelledError("the client is gone"); }

}  // namespace msprobe::server
