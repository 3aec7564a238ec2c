#pragma once

#include <sys/types.h>

#include <string>

#include "server/ingest/session/events.h"
#include "server/ingest/session/sessions.h"
#include "server/metrics/metrics.h"
#include "server/monitor/dump_room.h"
#include "server/monitor/keyed_workers.h"
#include "server/store/store.h"

namespace msprobe::server {

// Writes the finished steps of an embedded server to dump_path/step{N}/rank{R}, on threads of its own, and tells the
// session about each.
//
// 1. Exports of one session happen in order. A directory appears whole.
// 2. A step that was exported for a later session of the same rank, of this run or another one, is not overwritten.
// 3. Imported sessions are not exported.
// Threads: any.
class StepExports : public SessionObserver {
 public:
  // `room` hears of each step that waits and is exported. `umask`: for the files below dump_path.
  StepExports(Store* store, Metrics* metrics, DumpRoom* room, std::string dump_path, mode_t umask, int threads)
      : store_(store),
        metrics_(metrics),
        room_(room),
        dump_path_(std::move(dump_path)),
        umask_(umask),
        workers_(threads) {}

  // Call before the first event.
  void Connect(Sessions* sessions) { sessions_ = sessions; }

  // Queues the finished steps that an earlier server of this directory could not export because it was killed.
  absl::Status Recover();

  void OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) override;
  void OnExportRequested(const std::string& session, uint32_t step) override;
  void OnExportAwaited(const std::string& session, uint32_t step) override;
  void OnRankKnown(const std::string& session, const v1::Rank& from, const v1::Rank& to) override;

  // Ends the worker threads. Steps that still wait are left to the next server of the directory.
  void Stop() { workers_.Stop(); }

  bool idle() const { return workers_.idle(); }
  // The number of sessions with a running or waiting export.
  size_t waiting() const { return workers_.busy_keys(); }
  bool AwaitIdle(absl::Duration timeout) const { return workers_.AwaitIdle(timeout); }

 private:
  void Queue(const std::string& session, uint32_t step);
  // Returns the directory that was written; empty: none.
  std::string ExportAndTell(const std::string& session, uint32_t step);
  void TellIfExported(const std::string& session, uint32_t step);
  // Returns the directory of the files; empty: there is nothing to write.
  absl::StatusOr<std::string> WriteFiles(const storage::SessionRow& session, uint32_t step, bool& finished,
                                         bool& incomplete);
  // Whether a later session has exported this rank and step.
  absl::StatusOr<bool> IsReplaced(const storage::SessionRow& session, uint32_t step) const;
  void MoveDirectories(const std::string& session, const v1::Rank& from, const v1::Rank& to);

  Store* const store_;
  Metrics* const metrics_;
  DumpRoom* const room_;
  const std::string dump_path_;
  const mode_t umask_;
  Sessions* sessions_ = nullptr;
  KeyedWorkers workers_;
};

}  // namespace msprobe::server
