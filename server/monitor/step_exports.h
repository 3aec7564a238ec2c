#pragma once

#include <sys/types.h>

#include <string>

#include "server/ingest/events.h"
#include "server/ingest/sessions.h"
#include "server/metrics/metrics.h"
#include "server/monitor/dump_room.h"
#include "server/monitor/keyed_workers.h"
#include "server/store/store.h"

namespace msprobe::server {

// What an embedded server does with finished steps: writes dump_path/step{N}/rank{R} off the ingest threads and tells
// the session.
//
// 1. Exports of one session happen in order. A directory appears whole.
// 2. A step that a session of the same rank has exported which began later, of this run or another one, is not written
//    over.
// 3. Imported sessions are not exported.
class StepExports : public SessionObserver {
 public:
  // `room` hears of each step that waits and is exported. `umask`: of the user whose dump_path it is, for what is
  // written there.
  StepExports(Store* store, Metrics* metrics, DumpRoom* room, std::string dump_path, mode_t umask, int threads)
      : store_(store),
        metrics_(metrics),
        room_(room),
        dump_path_(std::move(dump_path)),
        umask_(umask),
        workers_(threads) {}

  // Before anything is observed.
  void Connect(Sessions* sessions) { sessions_ = sessions; }

  // Queues what is finished and was never exported: an earlier server of this directory was killed.
  absl::Status Recover();

  void OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) override;
  void OnExportRequested(const std::string& session, uint32_t step) override;
  void OnExportAwaited(const std::string& session, uint32_t step) override;
  void OnRankKnown(const std::string& session, const v1::Rank& from, const v1::Rank& to) override;

  // Ends the worker threads; what waits is left to the next server of the directory.
  void Stop() { workers_.Stop(); }

  bool idle() const { return workers_.idle(); }
  // Sessions with an export that runs or waits.
  size_t waiting() const { return workers_.busy_keys(); }
  bool AwaitIdle(absl::Duration timeout) const { return workers_.AwaitIdle(timeout); }

 private:
  void Queue(const std::string& session, uint32_t step);
  // Gives the directory; empty: none was written.
  std::string ExportAndTell(const std::string& session, uint32_t step);
  void TellIfExported(const std::string& session, uint32_t step);
  // Where the files are; empty: there is nothing to write.
  absl::StatusOr<std::string> WriteFiles(const storage::SessionRow& session, uint32_t step, bool& finished,
                                         bool& incomplete);
  // A session that began later has written files of this rank and step.
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
