#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "msprobe/v1/ingest.pb.h"
#include "server/ingest/session/sessions.h"

namespace msprobe::server {

// Knows how much of its disks an embedded run has taken, and whether it may take more. It tells the run's processes,
// which pause capturing while the room is full.
//
// These count, in blocks of the disk: the step directories of dump_path, the data directory and the spool. Steps that
// wait to be exported count with the average size of exported steps. With a quota, the limit is the quota for all disks
// together. Without one, each disk has a limit: what the run held there at the start plus half of what was free then. A
// tenth of what was free always stays free, even if others fill the disk.
// 1. At the limit the room is full, until a twentieth of the limit is free again.
// 2. Records on their way are still taken, up to a quarter above the limit. Beyond that, Admit refuses.
// 3. This class deletes nothing, but notices when somebody else does.
// Threads: Start and Stop from one; the others from any.
class DumpRoom {
 public:
  struct Options {
    std::string dump_path, data_directory;
    uint64_t quota_bytes = 0;                    // 0: no quota
    absl::Duration period = absl::Seconds(1);    // between two looks at the data directory, the spool and the disks
    absl::Duration recount = absl::Seconds(10);  // between two counts of all step directories, while the room is full
  };
  explicit DumpRoom(Options options);
  ~DumpRoom() { Stop(); }

  // Starts a thread that looks every period and tells the processes of `sessions`. `sessions` must outlive Stop.
  void Start(const Sessions* sessions);
  void Stop();

  // A step waits to be exported.
  void NoteWaiting() { ++waiting_; }
  // A waiting step was exported into these; empty: it could not be exported.
  void NoteExported(const std::vector<std::string>& directories);

  // ResourceExhausted: no more records are taken.
  absl::Status Admit() const;

  // Looks once. Only without the thread of Start.
  void Look(absl::Time now);
  // The state at the last look.
  v1::DumpRoom state() const;

 private:
  struct Disk {
    std::string place;                     // a path on this disk
    std::vector<std::string> directories;  // those that count
    bool has_steps = false;
    uint64_t limit = 0;      // without a quota
    uint64_t kept_free = 0;  // without a quota
  };

  void Loop(const Sessions& sessions);
  void FindDisks();
  void CountSteps();
  uint64_t Awaited() const;
  void Tell(const Sessions& sessions);

  const Options options_;

  std::atomic<uint64_t> waiting_{0};
  std::atomic<uint64_t> steps_{0}, step_bytes_{0};               // exported by any program
  std::atomic<uint64_t> measured_steps_{0}, measured_bytes_{0};  // exported by this server
  std::atomic<bool> refusing_{false};
  // Used by the looking thread alone.
  std::vector<Disk> disks_;
  absl::Time counted_ = absl::InfinitePast();
  uint64_t warned_bytes_ = 0;
  uint64_t version_ = 0;                  // of the state that processes are told
  std::map<std::string, uint64_t> told_;  // the version that each session knows

  mutable absl::Mutex mu_;
  v1::DumpRoom state_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace msprobe::server
