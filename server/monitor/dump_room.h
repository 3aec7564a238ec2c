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
#include "server/ingest/sessions.h"

namespace msprobe::server {

// How much of its disks an embedded run has taken, and whether it may take more. Its processes are told, and pause
// capturing while it is full.
//
// What counts: the step directories of dump_path, the data directory and the spool, in blocks as the disk counts them;
// and steps that wait to be exported, at the average of those that are. Disks are counted apart. The limit is the
// quota, of all disks together; without one, of each disk what the run held at the start and half of what was free, and
// a tenth of what was free is left whoever takes the rest.
// 1. At the limit it is full, until a twentieth of the limit is free again.
// 2. What is on its way then is taken all the same, up to a quarter more; then Admit refuses.
// 3. Nothing is ever deleted; when somebody else does so, it is seen.
// Threads: Start and Stop from one; the others from any.
class DumpRoom {
 public:
  struct Options {
    std::string dump_path, data_directory;
    uint64_t quota_bytes = 0;                    // 0: none
    absl::Duration period = absl::Seconds(1);    // between two looks at what changes all the time
    absl::Duration recount = absl::Seconds(10);  // between two looks at all steps, while it is full
  };
  explicit DumpRoom(Options options);
  ~DumpRoom() { Stop(); }

  // Looks every period, and tells the processes of `sessions`, which outlive Stop.
  void Start(const Sessions* sessions);
  void Stop();

  // A step waits to be exported; it is, or could not be.
  void NoteWaiting() { ++waiting_; }
  void NoteExported(const std::string& directory);

  // ResourceExhausted: nothing more is taken.
  absl::Status Admit() const;

  // Only where there is no thread.
  void Look(absl::Time now);
  // As it was at the last look.
  v1::DumpRoom state() const;

 private:
  struct Disk {
    std::string place;                     // a path on it
    std::vector<std::string> directories;  // that count
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
  std::atomic<uint64_t> steps_{0}, step_bytes_{0};               // exported, of all programs
  std::atomic<uint64_t> measured_steps_{0}, measured_bytes_{0};  // exported by this server
  std::atomic<bool> refusing_{false};
  // Of the looking thread.
  std::vector<Disk> disks_;
  absl::Time counted_ = absl::InfinitePast();
  uint64_t warned_bytes_ = 0;
  uint64_t version_ = 0;                  // of what there is to be told
  std::map<std::string, uint64_t> told_;  // version, by session

  mutable absl::Mutex mu_;
  v1::DumpRoom state_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace msprobe::server
