#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace msprobe::server {

// Every metric has a row in the table of catalogue.cc. A new metric is one line here and one there.
enum class Metric : uint8_t {
  kIngestBatches,
  kIngestBytes,
  kIngestRecords,
  kIngestDuplicates,
  kIngestRefused,
  kAcks,
  kAckSeconds,
  kOpenSessions,
  kSessionsLost,
  kStepsFinished,
  kLastStep,
  kLastStepTime,
  kAgentQueueBytes,
  kNanTensors,
  kInfTensors,
  kOverflowProducers,
  kOverflowFirstStep,
  kWatched,
  kWatchedSteps,
  kPayloadBytes,
  kSharedBytes,
  kPayloadsRefused,
  kGaps,
  kExports,
  kTileSets,
  kTiledPasses,
  kTilingBytes,
  kTilingSeconds,
  kTilingFailures,
  kStepsWaiting,
  kWriteBufferBytes,
  kRunsRemoved,
  kDiskFreeBytes,
  kStoreRefusing,
  kStreams,
  kWaitingBatches,
  kDurableBatches,
  kPayloadsWaiting,
  kSyncs,
  kSyncSeconds,
  kSyncsWaiting,
  kSyncLag,
  kWrittenBytes,
  kWriteSeconds,
  kWriteStall,
  kStoreBytes,
  kCompactionBytes,
  kBlockCacheBytes,
  kExportsWaiting,
  kProcessBytes,
  kProcessCpu,
  kProcessOpenFiles,
  kProcessMaxFiles,
  kProcessStart,
  kAnalyses,
  kAnalysesUnderWay,
  kCallsDenied,
  kRedirects,
  kThrottles,
  kThrottleBytesPerSecond,
  kShardsUnreachable,
  kCertificateExpiry,
  kBuildInfo,
  kWebRequests,
  kWebSeconds,
  kWebUnderWay,
  kScrapeSeconds,
  kConnectionsCut,
  kJobItems,
  kJobResults,
  kJobItemSeconds,
  kJobResultsRefused,
  kJobLeasesExpired,
  kAlarms,
  kNotices,
  kNoticesWaiting,
  kIllResponses,
  kResponseTokens,
  kRulesSkipped,
  kCheckVerdicts,
  kCheckOldest,
  kCheckSeconds,
  kCheckLeftOut,
  kCheckReleased,
  kCount,
};

enum class MetricType : uint8_t { kCounter, kGauge, kHistogram };

struct MetricRow {
  Metric metric;
  std::string_view name;
  MetricType type;
  std::string_view unit;
  std::string_view labels;  // names separated by commas, in the order in which callers give the values
  std::string_view help;
  // Sets of label values that exist at the same time; see Metrics.
  size_t max_series = 1000;
};

// All rows, in the order of Metric.
std::span<const MetricRow> MetricCatalogue();

// The whole text of docs/metrics.md.
std::string MetricsDocument();

}  // namespace msprobe::server
