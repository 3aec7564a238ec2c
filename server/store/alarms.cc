#include "server/store/alarms.h"

#include <string>
#include <string_view>
#include <utility>

#include "server/format/storage/key.h"
#include "server/format/storage/value.h"

namespace msprobe::server {
namespace {

std::string RulesKey(uint32_t run) { return MetaPrefix(MetaSpace::kRules, run); }

}  // namespace

absl::StatusOr<std::vector<v1::Alarm>> Alarms::Of(uint32_t run) const {
  std::vector<v1::Alarm> alarms;
  absl::Status status = database_.ForEach(
      Family::kMeta, MetaPrefix(MetaSpace::kAlarm, run),
      [&alarms](std::string_view, std::string_view value) { return DecodeValue(value, alarms.emplace_back()); });
  if (!status.ok()) return status;
  return alarms;
}

void Alarms::Put(uint32_t run, const v1::Alarm& alarm, ChangeSet& changes) {
  changes.PutMeta(AlarmKey(run, alarm.number()), alarm);
}

absl::StatusOr<std::optional<v1::Alarm>> Alarms::Find(uint32_t run, uint32_t number) const {
  return database_.Find<v1::Alarm>(AlarmKey(run, number));
}

absl::StatusOr<std::optional<storage::NoticeRow>> Alarms::FindNotice(const NoticeKey& key) const {
  return database_.Find<storage::NoticeRow>(key.Encode());
}

absl::StatusOr<std::vector<std::pair<NoticeKey, storage::NoticeRow>>> Alarms::Notices() const {
  std::vector<std::pair<NoticeKey, storage::NoticeRow>> notices;
  absl::Status status = database_.ForEach(
      Family::kMeta, MetaPrefix(MetaSpace::kNotice), [&notices](std::string_view key, std::string_view value) {
        auto place = NoticeKey::Decode(key);
        return place.ok() ? DecodeValue(value, notices.emplace_back(*place, storage::NoticeRow()).second)
                          : place.status();
      });
  if (!status.ok()) return status;
  return notices;
}

absl::StatusOr<std::optional<v1::RuleSet>> Alarms::Rules(uint32_t run) const {
  return database_.Find<v1::RuleSet>(RulesKey(run));
}

absl::Status Alarms::SetRules(uint32_t run, const std::optional<v1::RuleSet>& rules) const {
  ChangeSet changes;
  if (rules.has_value()) {
    changes.PutMeta(RulesKey(run), *rules);
  } else {
    changes.Delete(Family::kMeta, RulesKey(run));
  }
  return database_.Write(changes);
}

void Alarms::AddRunDeletion(uint32_t run, ChangeSet& changes) {
  changes.DeletePrefix(Family::kMeta, MetaPrefix(MetaSpace::kAlarm, run));
  changes.DeletePrefix(Family::kMeta, MetaPrefix(MetaSpace::kNotice, run));
  changes.Delete(Family::kMeta, RulesKey(run));
}

}  // namespace msprobe::server
