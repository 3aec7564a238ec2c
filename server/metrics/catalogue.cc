#include "server/metrics/catalogue.h"

#include <array>

#include "absl/strings/str_cat.h"

namespace msprobe::server {
namespace {

constexpr std::array kRows = std::to_array<MetricRow>({
    {Metric::kIngestBatches, "msprobe_ingest_batches_total", MetricType::kCounter, "batches", "",
     "Batches applied, duplicates not counted."},
    {Metric::kIngestBytes, "msprobe_ingest_bytes_total", MetricType::kCounter, "bytes", "kind",
     "Bytes taken in; kind is batch or payload."},
    {Metric::kIngestRecords, "msprobe_ingest_records_total", MetricType::kCounter, "records", "",
     "Records stored (entries of dump.json)."},
    {Metric::kIngestDuplicates, "msprobe_ingest_duplicate_batches_total", MetricType::kCounter, "batches", "",
     "Batches that were sent again and acknowledged without effect."},
    {Metric::kIngestRefused, "msprobe_ingest_refused_total", MetricType::kCounter, "messages", "code",
     "Messages refused, by status code; their stream ends."},
    {Metric::kAcks, "msprobe_ingest_acks_total", MetricType::kCounter, "messages", "", "Acknowledgements sent."},
    {Metric::kAckSeconds, "msprobe_ingest_ack_seconds", MetricType::kHistogram, "seconds", "",
     "From a batch's arrival to the moment at which it is durable and may be acknowledged."},
    {Metric::kOpenSessions, "msprobe_sessions_open", MetricType::kGauge, "sessions", "",
     "Sessions that have neither ended nor been lost."},
    {Metric::kSessionsLost, "msprobe_sessions_lost_total", MetricType::kCounter, "sessions", "",
     "Sessions whose stream broke and whose process did not come back."},
    {Metric::kStepsFinished, "msprobe_steps_total", MetricType::kCounter, "steps", "state",
     "Steps of one rank that finished; state is complete or incomplete."},
    {Metric::kLastStep, "msprobe_last_complete_step", MetricType::kGauge, "steps", "run,rank",
     "Number of the rank's step that was completed last, while its session is open."},
    {Metric::kLastStepTime, "msprobe_last_step_timestamp_seconds", MetricType::kGauge, "seconds", "run,rank",
     "When the rank's last complete step ended, as Unix time: time() less this is how far a rank lags, while "
     "its session is open."},
    {Metric::kAgentQueueBytes, "msprobe_agent_queue_bytes", MetricType::kGauge, "bytes", "run,rank",
     "Bytes captured and not durable yet, in the memory and the spool of the rank's process. Its agent is asked "
     "every ten seconds while it is connected."},
    {Metric::kNanTensors, "msprobe_nan_tensors_total", MetricType::kCounter, "tensors", "run,rank",
     "Tensors with at least one NaN."},
    {Metric::kInfTensors, "msprobe_inf_tensors_total", MetricType::kCounter, "tensors", "run,rank",
     "Tensors with at least one infinity."},
    {Metric::kOverflowProducers, "msprobe_overflow_producers_total", MetricType::kCounter, "tensors",
     "run,rank,module_group,kind",
     "Tensors in which a NaN or infinity began (`msprobe-client overflow` lists them), by the module's first four "
     "names with numbers as *; kind is nan or inf. Each run has at most 64 groups; the others count as \"other\". "
     "Counts steps that have ended since this server began, without imports.",
     10000},
    {Metric::kOverflowFirstStep, "msprobe_overflow_first_step", MetricType::kGauge, "steps",
     "run,rank,module_group,kind,origin",
     "Number of the rank's first step in which a NaN or infinity began. The other labels are those of the first such "
     "tensor; origin is computation, weight or input."},
    {Metric::kWatched, "msprobe_watched_value", MetricType::kGauge, "", "run,rank,watch",
     "Statistic of a tensor that --watch names, in the rank's last step that has it.", 10000},
    {Metric::kWatchedSteps, "msprobe_watched_steps_total", MetricType::kCounter, "steps", "result",
     "Ended steps that were looked at for overflow producers and watched values; result is read, unread (no number was "
     "needed), skipped (256 were waiting) or error."},
    {Metric::kPayloadBytes, "msprobe_payload_stored_bytes_total", MetricType::kCounter, "bytes", "",
     "Bytes of payloads that became whole."},
    {Metric::kSharedBytes, "msprobe_payload_shared_bytes_total", MetricType::kCounter, "bytes", "",
     "Bytes of payloads that were read from memory which an agent of this machine shares; the others of kind payload "
     "came in messages."},
    {Metric::kPayloadsRefused, "msprobe_payloads_refused_total", MetricType::kCounter, "payloads", "",
     "Payloads whose bytes did not have the announced hash or size."},
    {Metric::kGaps, "msprobe_gap_fragments_total", MetricType::kCounter, "fragments", "reason",
     "Fragments that agents report as lost, by reason."},
    {Metric::kExports, "msprobe_exports_total", MetricType::kCounter, "exports", "result",
     "Step directories written or streamed; result is ok or error."},
    {Metric::kTileSets, "msprobe_tile_sets_total", MetricType::kCounter, "sets", "",
     "Sets of passes that were rewritten from rows as tiles."},
    {Metric::kTiledPasses, "msprobe_tiled_passes_total", MetricType::kCounter, "passes", "",
     "Passes that were rewritten from rows as tiles."},
    {Metric::kTilingBytes, "msprobe_tiling_bytes_total", MetricType::kCounter, "bytes", "kind",
     "Bytes of the passes that were rewritten; kind is rows (before) or tiles (after)."},
    {Metric::kTilingSeconds, "msprobe_tiling_seconds_total", MetricType::kCounter, "seconds", "",
     "Time at work on tiles, at the lowest priority; at most half of one core's."},
    {Metric::kTilingFailures, "msprobe_tiling_failures_total", MetricType::kCounter, "rounds", "",
     "Rounds in which some session could not be tiled; its steps stay rows and are tried again."},
    {Metric::kStepsWaiting, "msprobe_tiling_waiting_steps", MetricType::kGauge, "steps", "",
     "Finished steps that are rows and may become tiles; up to 47 of each session in good order."},
    {Metric::kWriteBufferBytes, "msprobe_write_buffer_bytes", MetricType::kGauge, "bytes", "",
     "Bytes written and not yet in files. At a quarter of --memory_limit, writers wait."},
    {Metric::kRunsRemoved, "msprobe_runs_removed_total", MetricType::kCounter, "runs", "",
     "Runs that retention removed; what users delete is not counted."},
    {Metric::kDiskFreeBytes, "msprobe_disk_free_bytes", MetricType::kGauge, "bytes", "",
     "Bytes free on the disk of the data directory."},
    {Metric::kStoreRefusing, "msprobe_store_refusing", MetricType::kGauge, "", "",
     "1 while new content is refused because the disk is full or failed, else 0."},
    {Metric::kStreams, "msprobe_ingest_streams", MetricType::kGauge, "streams", "", "Streams of agents under way."},
    {Metric::kWaitingBatches, "msprobe_ingest_waiting_batches", MetricType::kGauge, "batches", "",
     "Batches of all sessions that are received and not yet durable: how far the two watermarks lie apart."},
    {Metric::kDurableBatches, "msprobe_ingest_durable_batches_total", MetricType::kCounter, "batches", "",
     "Batches that became durable: what agents may free."},
    {Metric::kPayloadsWaiting, "msprobe_payloads_waiting", MetricType::kGauge, "payloads", "",
     "Payloads announced by sessions in use and not yet whole."},
    {Metric::kSyncs, "msprobe_syncs_total", MetricType::kCounter, "syncs", "",
     "Syncs of the log: each makes a group of batches durable."},
    {Metric::kSyncSeconds, "msprobe_sync_seconds_total", MetricType::kCounter, "seconds", "",
     "Time that syncs of the log took."},
    {Metric::kSyncsWaiting, "msprobe_sync_waiting", MetricType::kGauge, "writes", "",
     "Writes that wait for the sync of the log under way or the next one."},
    {Metric::kSyncLag, "msprobe_sync_lag_seconds", MetricType::kGauge, "seconds", "",
     "How long the oldest write has waited for a sync of the log; 0: no write waits."},
    {Metric::kWrittenBytes, "msprobe_store_written_bytes_total", MetricType::kCounter, "bytes", "",
     "Keys and values written, before any compression; rewriting as tiles counts again."},
    {Metric::kWriteSeconds, "msprobe_store_write_seconds_total", MetricType::kCounter, "seconds", "",
     "Time that writes of keys and values took, with waits for memory and for RocksDB."},
    {Metric::kWriteStall, "msprobe_store_write_stall", MetricType::kGauge, "", "",
     "Whether RocksDB holds writers back: 0 no, 1 it slows them, 2 it stops them."},
    {Metric::kStoreBytes, "msprobe_store_bytes", MetricType::kGauge, "bytes", "family",
     "Bytes of files in the data directory; family is meta, rows, tiles or payloads."},
    {Metric::kCompactionBytes, "msprobe_store_pending_compaction_bytes", MetricType::kGauge, "bytes", "",
     "Bytes that RocksDB means to rewrite."},
    {Metric::kBlockCacheBytes, "msprobe_store_block_cache_bytes", MetricType::kGauge, "bytes", "",
     "Bytes that the cache of blocks holds: at most an eighth of --memory_limit."},
    {Metric::kExportsWaiting, "msprobe_exports_waiting", MetricType::kGauge, "exports", "",
     "Sessions with a step that is to be exported or is being exported."},
    {Metric::kProcessBytes, "msprobe_process_resident_bytes", MetricType::kGauge, "bytes", "",
     "Memory of the server's process."},
    {Metric::kProcessCpu, "msprobe_process_cpu_seconds_total", MetricType::kCounter, "seconds", "",
     "Processor time of the server's process."},
    {Metric::kProcessOpenFiles, "msprobe_process_open_files", MetricType::kGauge, "files", "",
     "Descriptors that the server's process has open: files, sockets and connections."},
    {Metric::kProcessMaxFiles, "msprobe_process_max_files", MetricType::kGauge, "files", "",
     "How many descriptors the server's process may have open (RLIMIT_NOFILE)."},
    {Metric::kProcessStart, "msprobe_process_start_time_seconds", MetricType::kGauge, "seconds", "",
     "When this server began, as Unix time."},
    {Metric::kAnalyses, "msprobe_analyses_total", MetricType::kCounter, "requests", "kind,result",
     "Comparisons and other questions answered; result is ok, cancelled (the client went away) or error."},
    {Metric::kAnalysesUnderWay, "msprobe_analyses_under_way", MetricType::kGauge, "requests", "",
     "Comparisons and other questions that are being answered."},
    {Metric::kCallsDenied, "msprobe_calls_denied_total", MetricType::kCounter, "calls", "reason",
     "Calls without a token that is known (unauthenticated) or whose token lacks the role (permission_denied)."},
    {Metric::kRedirects, "msprobe_ingest_redirects_total", MetricType::kCounter, "streams", "",
     "Streams sent to another server of the cluster, to which the rank of the run is bound."},
    {Metric::kThrottles, "msprobe_ingest_throttles_total", MetricType::kCounter, "messages", "",
     "Streams told to send at another speed, once for each stream and change."},
    {Metric::kThrottleBytesPerSecond, "msprobe_ingest_throttle_bytes_per_second", MetricType::kGauge, "bytes/s", "",
     "How fast each stream may send, because three quarters of the memory for writing are used. 0: no limit."},
    {Metric::kShardsUnreachable, "msprobe_shards_unreachable", MetricType::kGauge, "servers", "",
     "Other servers of the cluster that did not answer when they were last asked, about every ten seconds."},
    {Metric::kCertificateExpiry, "msprobe_certificate_expiry_timestamp_seconds", MetricType::kGauge, "seconds", "file",
     "When a certificate that is in use ceases to be valid, as Unix time; file is the flag that names it: tls_cert, "
     "tls_client_ca or shard_ca."},
    {Metric::kBuildInfo, "msprobe_build_info", MetricType::kGauge, "", "version", "Always 1."},
    {Metric::kWebRequests, "msprobe_web_requests_total", MetricType::kCounter, "requests", "kind,result",
     "Requests to the web page of --web_listen; kind is page (a file), what was asked, or unknown; result is ok, "
     "refused (no token, no such thing, too many at once), cancelled (the browser went away) or error."},
    {Metric::kWebSeconds, "msprobe_web_seconds", MetricType::kHistogram, "seconds", "",
     "How long the page's questions took."},
    {Metric::kWebUnderWay, "msprobe_web_under_way", MetricType::kGauge, "requests", "",
     "The page's questions that are being answered; 8 at most."},
    {Metric::kScrapeSeconds, "msprobe_scrape_seconds", MetricType::kHistogram, "seconds", "",
     "How long it took to write this page of metrics; its count is that of the scrapes."},
    {Metric::kConnectionsCut, "msprobe_http_connections_cut_total", MetricType::kCounter, "connections", "port,reason",
     "Connections to the ports web and metrics that were closed before their time; reason is deadline (the request or "
     "the client took too long) or crowded (others wanted their place)."},
    {Metric::kJobItems, "msprobe_job_items", MetricType::kGauge, "items", "state",
     "Items of jobs without a result: waiting for a worker, or leased to one."},
    {Metric::kJobResults, "msprobe_job_results_total", MetricType::kCounter, "items", "result",
     "Items that are through; result is done, failed (its function refused) or crashed (its workers died)."},
    {Metric::kJobItemSeconds, "msprobe_job_item_seconds", MetricType::kHistogram, "seconds", "",
     "How long done and failed items ran, by their workers' clocks."},
    {Metric::kJobResultsRefused, "msprobe_job_results_refused_total", MetricType::kCounter, "items", "",
     "Results that came too late: the lease had expired, another worker had given one, or the job was cancelled."},
    {Metric::kJobLeasesExpired, "msprobe_job_leases_expired_total", MetricType::kCounter, "leases", "",
     "Leases whose worker was not heard of in time, or ran an item too long."},
    {Metric::kAlarms, "msprobe_alarms_total", MetricType::kCounter, "alarms", "run,rule",
     "Alarms that rules raised since this server began (`msprobe-client alarms` lists them)."},
    {Metric::kNotices, "msprobe_notices_total", MetricType::kCounter, "notices", "receiver,result",
     "Notices of alarms to receivers; receiver is webhook or alertmanager, result is sent, failed (an attempt; it is "
     "tried again) or dropped (more than 10,000 waited)."},
    {Metric::kNoticesWaiting, "msprobe_notices_waiting", MetricType::kGauge, "notices", "receiver",
     "Alarms of which a receiver is to be told and has not been."},
    {Metric::kIllResponses, "msprobe_ill_responses_total", MetricType::kCounter, "replies", "run,kind",
     "Replies of language models in which a rule ill_response found a fault (docs/responses.md); kind is rare, "
     "garbled, repeat or not_finite. A reply with two faults counts as each."},
    {Metric::kResponseTokens, "msprobe_response_tokens_total", MetricType::kCounter, "tokens", "run,kind",
     "Tokens of replies that came; kind is judged, or tokens_alone: they have no log-probabilities."},
    {Metric::kRulesSkipped, "msprobe_rules_skipped_total", MetricType::kCounter, "parts", "what",
     "What rules did not see: scalars or responses (batches) and steps, because they were behind; shards (steps of a "
     "tensor), because a rank did not send its own."},
    {Metric::kCheckVerdicts, "msprobe_check_verdicts_total", MetricType::kCounter, "calls", "run,verdict",
     "Calls that were checked while their run goes on (task check), by the worst verdict of their outputs."},
    {Metric::kCheckOldest, "msprobe_check_oldest_unchecked_seconds", MetricType::kGauge, "seconds", "run",
     "How long the call waits that has waited longest for its verdict; 0: none does."},
    {Metric::kCheckSeconds, "msprobe_check_seconds", MetricType::kHistogram, "seconds", "",
     "From when a call's record was durable to its verdict."},
    {Metric::kCheckLeftOut, "msprobe_check_left_out_total", MetricType::kCounter, "calls", "run",
     "Calls that were captured and not given to workers, because too many of their run waited already."},
    {Metric::kCheckReleased, "msprobe_check_released_bytes_total", MetricType::kCounter, "bytes", "",
     "Tensors that went because every call that needed them has passed its check."},
});
static_assert(kRows.size() == static_cast<size_t>(Metric::kCount));

std::string TypeName(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "";
}

}  // namespace

std::span<const MetricRow> MetricCatalogue() { return kRows; }

std::string MetricsDocument() {
  std::string text =
      "# Metrics\n\n"
      "Served at `http://<metrics_listen>/metrics`. This file is generated from `server/metrics/catalogue.cc`; "
      "`metrics_test` checks that it is current and, with `MSPROBE_UPDATE_DOCS=1`, writes it.\n\n"
      "A metric with labels has at most 1,000 series at once, those of overflow producers and watched values 10,000: a "
      "new one takes the place of the one that was changed longest ago. A run takes its series with it when it is "
      "deleted.\n\n"
      "| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n";
  for (const MetricRow& row : kRows) {
    auto cell = [](std::string_view value) { return value.empty() ? std::string("-") : std::string(value); };
    absl::StrAppend(&text, "| `", std::string(row.name), "` | ", TypeName(row.type), " | ", cell(row.unit), " | ",
                    cell(row.labels), " | ", std::string(row.help), " |\n");
  }
  return text;
}

}  // namespace msprobe::server
