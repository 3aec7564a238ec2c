#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/exporter/export_formats.h"
#include "server/exporter/file_sink.h"
#include "server/exporter/step_exporter.h"
#include "server/exporter/step_parts.h"
#include "server/format/storage/storage.pb.h"
#include "server/ingest/session/sessions.h"
#include "server/metrics/metrics.h"
#include "server/monitor/dump_room.h"
#include "server/monitor/keyed_workers.h"
#include "server/monitor/step_monitors.h"
#include "server/store/store.h"

namespace msprobe::server {

// Writes the finished steps of an embedded server to the directories of PartsOf in dump_path, on threads of its own,
// and tells the session about each. Steps of task grad_probe go to the files of gradient_files.h.
//
// 1. Exports of one session happen in order. A directory appears whole.
// 2. A step that was exported for a later session of the same rank, of this run or another one, is not overwritten.
// 3. Imported sessions are not exported.
// 4. A tensor's file, a stack.json or a construct.json that is as in the session's step before is a hard link to it.
// Threads: any.
class StepExports : public StepMonitor {
 public:
  // `room` hears of each step that waits and is exported.
  StepExports(Store* store, Metrics* metrics, DumpRoom* room, DumpOutput files)
      : store_(store), metrics_(metrics), room_(room), files_(std::move(files)), workers_(files_.threads) {}

  // Queues the finished steps that an earlier server of this directory could not export because it was killed.
  absl::Status Begin(Sessions* sessions) override;

  void OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) override;
  void OnExportRequested(const std::string& session, uint32_t step) override;
  void OnExportAwaited(const std::string& session, uint32_t step) override;
  void OnRankKnown(const std::string& session, const v1::Rank& from, const v1::Rank& to) override;
  void OnSessionClosed(const storage::SessionRow& session) override;

  // Ends the worker threads. Steps that still wait are left to the next server of the directory.
  void Stop() override { workers_.Stop(); }

  size_t waiting() const override { return workers_.busy_keys(); }
  bool AwaitDone(absl::Duration timeout) const override { return workers_.AwaitIdle(timeout); }

 private:
  void Queue(const std::string& session, uint32_t step);
  // Returns the directories that were written: none where the step was exported as it is.
  std::vector<std::string> ExportAndTell(const std::string& session, uint32_t step);
  // ExportAndTell if the step has ended: an earlier attempt may have failed, or its server was killed.
  void TellExported(const std::string& session, uint32_t step);
  // Nothing: it is not stored, or cannot be read.
  std::optional<storage::StepRow> StoredStep(const storage::SessionRow& session, uint32_t step) const;
  // Returns the directories that have the files, or the one file; empty: there is nothing to write.
  absl::StatusOr<std::vector<std::string>> WriteFiles(const storage::SessionRow& session, uint32_t step, bool& finished,
                                                      bool& incomplete);
  // The files of task grad_probe. Returns the path of the table.
  absl::StatusOr<std::string> WriteGradients(RecordSource& step);
  // Where a program is told that its step is.
  std::string TellPath(const v1::CaptureSettings& settings, uint32_t step, const v1::Rank& rank) const;
  // Whether a later session has exported this rank and step.
  absl::StatusOr<bool> IsReplaced(const storage::SessionRow& session, uint32_t step) const;
  void MoveDirectories(const std::string& session, const v1::Rank& from, const v1::Rank& to);
  // What the steps of a session before the next one left, in one part of it.
  struct Former {
    FormerFiles files;  // of the last step
    StackTexts stacks;
  };
  // Used by one thread at a time, as the session's exports are.
  Former* FormerOf(const std::string& session, const StepPart& part);

  Store* const store_;
  Metrics* const metrics_;
  DumpRoom* const room_;
  const DumpOutput files_;
  // Constant after Begin.
  Sessions* sessions_ = nullptr;
  ExportFormats::Begin gradients_;
  absl::Mutex mu_;
  std::map<std::string, std::map<std::string, Former>> former_ ABSL_GUARDED_BY(mu_);  // by session and folder
  KeyedWorkers workers_;
};

// Returns null if the server writes no steps to files.
std::unique_ptr<StepMonitor> MakeStepExports(const MonitorParts& parts);

}  // namespace msprobe::server
