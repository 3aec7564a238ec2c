#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/query/look_again.h"
#include "server/query/query_context.h"
#include "server/store/alarms.h"

namespace msprobe::server {
namespace {

// Those of all shards, in the order in which they were raised.
absl::StatusOr<std::vector<v1::Alarm>> AlarmsNow(const QueryContext& context, const RunView& view) {
  std::vector<v1::Alarm> alarms;
  for (Peer* peer : view.holders()) {
    if (peer == nullptr) {
      auto run = context.store->catalogue().FindRun(view.run());
      if (!run.ok()) return run.status();
      auto here = Alarms(&context.store->database()).Of(run->number());
      if (!here.ok()) return here.status();
      alarms.insert(alarms.end(), here->begin(), here->end());
      continue;
    }
    absl::Status status = peer->ListAlarms(view.run(), [&alarms](const v1::Alarm& alarm) {
      alarms.push_back(alarm);
      return true;
    });
    if (!status.ok()) return status;
  }
  if (view.holders().size() == 1) return alarms;
  std::stable_sort(alarms.begin(), alarms.end(),
                   [](const v1::Alarm& a, const v1::Alarm& b) { return a.raised_unix_us() < b.raised_unix_us(); });
  for (size_t i = 0; i < alarms.size(); ++i) alarms[i].set_number(static_cast<uint32_t>(i + 1));
  return alarms;
}

absl::StatusOr<bool> IsOpen(const QueryContext& context, const RunView& view) {
  if (context.peers != nullptr) return view.open_sessions() > 0;
  auto run = context.store->catalogue().FindRun(view.run());
  if (!run.ok()) return run.status();
  auto sessions = context.store->catalogue().Sessions(run->number());
  if (!sessions.ok()) return sessions.status();
  return std::any_of(sessions->begin(), sessions->end(),
                     [](const storage::SessionRow& session) { return session.state() == storage::SessionRow::OPEN; });
}

}  // namespace

absl::Status ListAlarms(const QueryContext& context, const v1::ListAlarmsRequest& request,
                        const std::function<bool()>& cancelled, const Send<v1::Alarm>& send) {
  std::map<uint32_t, std::string> sent;  // by number, serialized
  for (bool last = false; !last;) {
    auto view = RunView::Open(context.shards(), request.run());
    if (!view.ok()) return view.status();
    // Asked before the alarms are: what an open session may still raise is listed next time.
    auto open = IsOpen(context, *view);
    if (!open.ok()) return open.status();
    last = !request.follow() || !*open;
    // What the last steps raise comes a moment after their session has ended.
    if (last && request.follow()) absl::SleepFor(kLookAgain);
    auto alarms = AlarmsNow(context, *view);
    if (!alarms.ok()) return alarms.status();
    for (const v1::Alarm& alarm : *alarms) {
      std::string bytes = alarm.SerializeAsString();
      if (std::string& before = sent[alarm.number()]; before != bytes) {
        before = std::move(bytes);
        if (!send(alarm)) return PeerGone();
      }
    }
    if (!last && !WaitToLookAgain(cancelled)) return PeerGone();
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
