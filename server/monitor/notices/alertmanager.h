#pragma once

#include "server/monitor/notices/notice_receiver.h"

namespace msprobe::server {

// Posts alarms to Alertmanager's API v2, as Prometheus does: an alarm that goes on is told again each minute and ends
// by itself if the server falls silent for five; one that has ended is resolved. If its first offence is another than
// the receiver knows, the labels are others, and what it knows is resolved with it. An alarm is there for kShortest,
// however short it was, as Alertmanager waits for a group before it tells anybody (group_wait, 30 s by default). Its
// end is told when it has come: Alertmanager keeps the later of two ends that lie ahead.
class Alertmanager final : public NoticeReceiver {
 public:
  static constexpr absl::Duration kRepeat = absl::Minutes(1);
  static constexpr absl::Duration kSilence = absl::Minutes(5);
  static constexpr absl::Duration kShortest = absl::Minutes(1);

  // url: of Alertmanager; the path of the API is put behind its own.
  explicit Alertmanager(const HttpUrl& url);
  Request RequestFor(const Notice& notice, absl::Time now) const override;
  absl::Duration repeat() const override { return kRepeat; }
  absl::Time EndOf(const v1::Alarm& alarm) const override;
};

}  // namespace msprobe::server
