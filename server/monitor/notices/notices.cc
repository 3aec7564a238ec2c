#include "server/monitor/notices/notices.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "agent/core/utf8.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/metrics/log.h"
#include "server/monitor/notices/alertmanager.h"
#include "server/monitor/notices/webhook.h"

namespace msprobe::server {
namespace {

constexpr size_t kShownAnswer = 200;
constexpr int kMostDoublings = 16;

std::vector<std::unique_ptr<NoticeReceiver>> MakeReceivers(const NoticeOptions& options) {
  std::vector<std::unique_ptr<NoticeReceiver>> receivers;
  for (const HttpUrl& url : options.webhooks) receivers.push_back(std::make_unique<Webhook>(url, options.secret));
  for (const HttpUrl& url : options.alertmanagers) receivers.push_back(std::make_unique<Alertmanager>(url));
  return receivers;
}

// Whether more has changed than how often the rule was broken.
bool SaysMore(const v1::Alarm& alarm, const v1::Alarm& told) {
  return alarm.series() != told.series() || alarm.step() != told.step() || alarm.rank().kind() != told.rank().kind() ||
         alarm.rank().number() != told.rank().number() || alarm.ranks_size() != told.ranks_size() ||
         alarm.others_size() != told.others_size() ||
         !google::protobuf::util::MessageDifferencer::Equals(alarm.captured(), told.captured());
}

}  // namespace

std::unique_ptr<Notices> Notices::Make(Store* store, Metrics* metrics, const NoticeOptions& options) {
  auto receivers = MakeReceivers(options);
  return receivers.empty() ? nullptr : std::make_unique<Notices>(store, metrics, options, std::move(receivers));
}

Notices::Notices(Store* store, Metrics* metrics, NoticeOptions options,
                 std::vector<std::unique_ptr<NoticeReceiver>> receivers)
    : store_(store), metrics_(metrics), options_(std::move(options)) {
  for (auto& receiver : receivers) {
    auto line = std::make_unique<Line>();
    line->receiver = std::move(receiver);
    line->poster = std::make_unique<HttpPoster>(options_.ca, options_.timeout);
    lines_.push_back(std::move(line));
  }
}

absl::Status Notices::Begin() {
  auto left = Alarms(&store_->database()).Notices();
  if (!left.ok()) return left.status();
  absl::MutexLock lock(&mu_);
  for (const auto& line : lines_) {
    for (const auto& [key, row] : *left) {
      if (key.receiver != line->receiver->id() || (!row.has_sending() && row.told().ended_unix_us() != 0)) continue;
      line->due[{key.run, key.number}] = Due();
    }
    Show(*line);
    line->thread = std::thread([this, each = line.get()] { Run(*each); });
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Notices::AddDue(uint32_t run, const v1::Alarm& alarm, ChangeSet& changes) const {
  bool is_new = false;
  for (const auto& line : lines_) {
    const NoticeKey key{run, alarm.number(), line->receiver->id()};
    auto known = Alarms(&store_->database()).FindNotice(key);
    if (!known.ok()) return known.status();
    if (known->has_value()) continue;
    changes.PutMeta(key.Encode(), storage::NoticeRow());
    is_new = true;
  }
  return is_new;
}

void Notices::Tell(uint32_t run, uint32_t number, bool soon) {
  const absl::Time at = soon ? absl::InfinitePast() : absl::Now() + options_.change_period;
  absl::MutexLock lock(&mu_);
  for (const auto& line : lines_) {
    const auto found = line->due.find({run, number});
    if (found != line->due.end()) {
      found->second.news = true;
      if (found->second.failures == 0) found->second.at = std::min(found->second.at, at);
    } else if (line->due.size() >= kMaxWaiting) {
      metrics_->Add(Metric::kNotices, 1, {line->receiver->kind(), "dropped"});
    } else {
      line->due[{run, number}].at = at;
    }
    Show(*line);
  }
  changed_.SignalAll();
}

void Notices::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  for (const auto& line : lines_) line->poster->Stop();
  for (const auto& line : lines_) {
    if (line->thread.joinable()) line->thread.join();
  }
}

void Notices::Show(const Line& line) {
  const auto waits = [](const auto& due) { return due.second.news; };
  std::ptrdiff_t waiting = 0;  // for all receivers of the kind
  for (const auto& each : lines_) {
    if (each->receiver->kind() != line.receiver->kind()) continue;
    waiting += std::count_if(each->due.begin(), each->due.end(), waits);
  }
  metrics_->Set(Metric::kNoticesWaiting, static_cast<double>(waiting), {line.receiver->kind()});
}

absl::Duration Notices::PauseAfter(int failures) const {
  return std::min(options_.first_pause * (1 << std::min(failures - 1, kMostDoublings)), options_.longest_pause);
}

void Notices::Run(Line& line) {
  while (const std::optional<Place> place = AwaitDue(line)) {
    bool failed = false;
    const absl::StatusOr<absl::Time> again = Look(line, *place, failed);
    Settle(line, *place, again, failed);
  }
}

std::optional<Notices::Place> Notices::AwaitDue(Line& line) {
  absl::MutexLock lock(&mu_);
  while (!stopping_) {
    const auto next = std::min_element(line.due.begin(), line.due.end(),
                                       [](const auto& a, const auto& b) { return a.second.at < b.second.at; });
    const absl::Time at = next == line.due.end() ? absl::InfiniteFuture() : std::max(next->second.at, line.again);
    if (at <= absl::Now()) {
      // What comes from now on is told later.
      next->second.news = false;
      next->second.at = absl::InfiniteFuture();
      return next->first;
    }
    changed_.WaitWithDeadline(&mu_, at);
  }
  return std::nullopt;
}

void Notices::Settle(Line& line, const Place& place, const absl::StatusOr<absl::Time>& again, bool failed) {
  if (!again.ok()) LogWarning("notices of alarm {} are not sent: {}", place.second, again.status().ToString());
  absl::MutexLock lock(&mu_);
  Due& due = line.due[place];
  due.failures = failed ? due.failures + 1 : 0;
  if (failed) {
    due.news = true;
    due.at = std::max(line.again, absl::Now() + PauseAfter(due.failures));
  } else if (!again.ok()) {
    due.news = true;
    due.at = absl::Now() + options_.longest_pause;
  } else if (due.at = std::min(due.at, *again); due.at == absl::InfiniteFuture()) {
    line.due.erase(place);
  }
  Show(line);
}

absl::StatusOr<absl::Time> Notices::Look(Line& line, const Place& place, bool& failed) {
  const NoticeKey key{place.first, place.second, line.receiver->id()};
  while (true) {
    auto row = Alarms(&store_->database()).FindNotice(key);
    if (!row.ok()) return row.status();
    if (!row->has_value()) return absl::InfiniteFuture();  // it has gone with its run
    absl::Time again = absl::InfiniteFuture();
    auto notice = NextNotice(line, key, **row, again);
    if (!notice.ok()) return notice.status();
    if (!notice->has_value()) return again;
    bool unreachable = false;
    if (absl::Status status = Send(line, **notice, unreachable); !status.ok()) {
      if (absl::IsCancelled(status)) return absl::InfiniteFuture();
      failed = true;
      metrics_->Add(Metric::kNotices, 1, {line.receiver->kind(), "failed"});
      LogWarning("the {} {} did not take alarm {} of run {}: {}; it is sent again", line.receiver->kind(),
                 line.receiver->url().Origin(), place.second, (*notice)->run, std::string(status.message()));
      if (unreachable) line.again = absl::Now() + PauseAfter(++line.failures);
      return absl::InfiniteFuture();
    }
    line.failures = 0;
    line.again = absl::InfinitePast();
    metrics_->Add(Metric::kNotices, 1, {line.receiver->kind(), "sent"});
    ChangeSet changes;
    storage::NoticeRow taken = **row;
    taken.set_taken(taken.taken() + 1);
    *taken.mutable_told() = (*notice)->alarm;
    taken.clear_sending();
    changes.PutMeta(key.Encode(), taken);
    if (absl::Status status = store_->database().Write(changes); !status.ok()) return status;
  }
}

absl::StatusOr<std::optional<Notice>> Notices::NextNotice(const Line& line, const NoticeKey& key,
                                                          storage::NoticeRow& row, absl::Time& again) {
  auto alarm = Alarms(&store_->database()).Find(key.run, key.number);
  if (!alarm.ok()) return alarm.status();
  if (!alarm->has_value()) return std::nullopt;
  auto run = store_->database().Find<storage::RunRow>(RunKey(key.run));
  if (!run.ok()) return run.status();
  if (!run->has_value()) return std::nullopt;
  const absl::Time now = store_->Now();
  if (!row.has_sending()) {
    const absl::Time made = absl::FromUnixMicros(row.made_unix_us());
    const bool goes_on = (*alarm)->ended_unix_us() == 0;
    if (row.has_told() && goes_on == (row.told().ended_unix_us() == 0)) {
      const absl::Duration wait = SaysMore(**alarm, row.told()) ? options_.change_period
                                  : goes_on                     ? line.receiver->repeat()
                                                                : absl::InfiniteDuration();
      again = made + wait;
      if (again > now) return std::nullopt;
    } else if (row.has_told() && !goes_on) {
      again = line.receiver->EndOf(**alarm);
      if (again > now) return std::nullopt;
    }
    *row.mutable_sending() = **alarm;
    if (!row.has_told())
      row.mutable_sending()->clear_ended_unix_us();  // it is told that it was raised, then that it ended
    row.set_made_unix_us(absl::ToUnixMicros(now));
    ChangeSet changes;
    changes.PutMeta(key.Encode(), row);
    if (absl::Status status = store_->database().Write(changes); !status.ok()) return status;
  }
  Notice notice;
  const v1::Alarm& sending = row.sending();
  const bool ends = sending.ended_unix_us() != 0 && row.has_told() && row.told().ended_unix_us() == 0;
  notice.event = !row.has_told() ? Notice::Event::kRaised : ends ? Notice::Event::kEnded : Notice::Event::kChanged;
  notice.id = Cat("msg_", store_->catalogue().server_id(), "_", key.run, "_", key.number, "_", row.taken() + 1);
  notice.run = (*run)->name();
  notice.alarm = sending;
  notice.told = row.has_told() ? &row.told() : nullptr;
  notice.made = absl::FromUnixMicros(row.made_unix_us());
  return notice;
}

absl::Status Notices::Send(Line& line, const Notice& notice, bool& unreachable) {
  const NoticeReceiver::Request request = line.receiver->RequestFor(notice, store_->Now());
  auto answer = line.poster->Post(line.receiver->url(), request.headers, request.body);
  if (!answer.ok()) {
    unreachable = true;
    return answer.status();
  }
  if (answer->status >= 200 && answer->status < 300) return absl::OkStatus();
  unreachable = answer->status >= 500 || answer->status == 408 || answer->status == 429;
  const bool redirects = answer->status >= 300 && answer->status < 400;
  return absl::UnavailableError(Cat("it answered ", answer->status, redirects ? ", and redirects are not followed" : "",
                                    answer->body.empty() ? "" : ": ",
                                    core::Visible(answer->body.substr(0, kShownAnswer))));
}

}  // namespace msprobe::server
