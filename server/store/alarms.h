#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "msprobe/v1/monitor.pb.h"
#include "server/format/storage/key.h"
#include "server/format/storage/storage.pb.h"
#include "server/store/change_set.h"
#include "server/store/database.h"

namespace msprobe::server {

// The alarms of each run, what receivers were told of them, and the rules that watch it in place of the server's. A
// plain value: make one where it is needed. Threads: every method from any thread.
class Alarms {
 public:
  // The database must outlive this object.
  explicit Alarms(Database* database) : database_(*database) {}

  // In order of number.
  absl::StatusOr<std::vector<v1::Alarm>> Of(uint32_t run) const;
  static void Put(uint32_t run, const v1::Alarm& alarm, ChangeSet& changes);

  // nullopt: the server's.
  absl::StatusOr<std::optional<v1::RuleSet>> Rules(uint32_t run) const;
  absl::Status SetRules(uint32_t run, const std::optional<v1::RuleSet>& rules) const;

  // nullopt: there is no such alarm, or no such notice.
  absl::StatusOr<std::optional<v1::Alarm>> Find(uint32_t run, uint32_t number) const;
  absl::StatusOr<std::optional<storage::NoticeRow>> FindNotice(const NoticeKey& key) const;
  // Of all runs.
  absl::StatusOr<std::vector<std::pair<NoticeKey, storage::NoticeRow>>> Notices() const;

  static void AddRunDeletion(uint32_t run, ChangeSet& changes);

 private:
  Database& database_;
};

}  // namespace msprobe::server
