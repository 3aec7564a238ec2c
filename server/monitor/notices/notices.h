#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/metrics/metrics.h"
#include "server/monitor/notices/http_post.h"
#include "server/monitor/notices/notice_receiver.h"
#include "server/store/alarms.h"
#include "server/store/store.h"

namespace msprobe::server {

// Tells receivers of alarms, on a thread for each, so that one that does not answer holds up no other.
//
// 1. What is due lies in the store, in the write that has the alarm: a receiver hears of each alarm at least once, even
//    if the server is killed in between. Of an alarm it hears that it was raised, in what it changed, and that it
//    ended.
// 2. A notice is sent unchanged, and under one id, until it is answered with a status of 2xx. Whatever else comes is a
//    failure; the pause before the next attempt doubles. While a receiver cannot be reached or fails (5xx), nothing
//    else is tried at it; one that refuses a notice (another status) is sent the others.
// 3. An alarm that changes is told again not before change_period; what it has become meanwhile is one notice.
// 4. At most kMaxWaiting alarms wait for a receiver; one more is counted as dropped.
// 5. Notices go with their run.
// Threads: any.
class Notices {
 public:
  static constexpr size_t kMaxWaiting = 10'000;

  // The store and the metrics are borrowed. Null: there are no receivers.
  static std::unique_ptr<Notices> Make(Store* store, Metrics* metrics, const NoticeOptions& options);
  Notices(Store* store, Metrics* metrics, NoticeOptions options,
          std::vector<std::unique_ptr<NoticeReceiver>> receivers);
  ~Notices() { Stop(); }

  // Takes up what an earlier process of this server left, and begins.
  absl::Status Begin();
  // Adds to the write that stores an alarm what makes it due. False: every receiver has it already.
  absl::StatusOr<bool> AddDue(uint32_t run, const v1::Alarm& alarm, ChangeSet& changes) const;
  // That write is done. soon: the alarm is new or has ended; else it may wait for change_period.
  void Tell(uint32_t run, uint32_t number, bool soon);
  // Ends what is under way; it is tried again by the next server of the directory. Idempotent.
  void Stop();

 private:
  using Place = std::pair<uint32_t, uint32_t>;  // run and number of the alarm
  struct Due {
    absl::Time at = absl::InfinitePast();  // when to look at it
    int failures = 0;                      // since a notice of it was taken
    bool news = true;                      // there is something to tell
  };
  struct Line {
    std::unique_ptr<NoticeReceiver> receiver;
    std::unique_ptr<HttpPoster> poster;
    std::map<Place, Due> due;  // guarded by mu_
    // Used by its thread alone.
    absl::Time again = absl::InfinitePast();  // when it may be tried
    int failures = 0;                         // in a row
    std::thread thread;
  };

  void Run(Line& line);
  // The next alarm that is due. nullopt: stopping.
  std::optional<Place> AwaitDue(Line& line);
  // Sends what there is of the alarm. Returns when to look again; InfiniteFuture: when it changes. failed: the receiver
  // did not take it.
  absl::StatusOr<absl::Time> Look(Line& line, const Place& place, bool& failed);
  void Settle(Line& line, const Place& place, const absl::StatusOr<absl::Time>& again, bool failed);
  // The notice that is under way or that there is news for; nullopt: none. again: when to look.
  absl::StatusOr<std::optional<Notice>> NextNotice(const Line& line, const NoticeKey& key, storage::NoticeRow& row,
                                                   absl::Time& again);
  // Not OK: it was not taken. unreachable: the receiver, and not only this notice, fails.
  absl::Status Send(Line& line, const Notice& notice, bool& unreachable);
  void Show(const Line& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Duration PauseAfter(int failures) const;

  Store* const store_;
  Metrics* const metrics_;
  const NoticeOptions options_;
  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  absl::CondVar changed_;
  std::vector<std::unique_ptr<Line>> lines_;  // constant after construction, but for their members
};

}  // namespace msprobe::server
