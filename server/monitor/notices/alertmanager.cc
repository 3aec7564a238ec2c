#include "server/monitor/notices/alertmanager.h"

#include <algorithm>
#include <tuple>

#include "server/format/cat.h"
#include "server/format/json/json_writer.h"
#include "server/format/storage/key.h"
#include "server/monitor/notices/notice_json.h"

namespace msprobe::server {
namespace {

HttpUrl OfApi(HttpUrl url) {
  while (url.target.ends_with('/')) url.target.pop_back();
  url.target += "/api/v2/alerts";
  return url;
}

void WriteAlert(JsonWriter& json, const std::string& run, const v1::Alarm& alarm, absl::Time ends) {
  json.StartObject();
  json.Name("labels");
  json.StartObject();
  WriteText(json, "alertname", alarm.rule());
  WriteText(json, "source", "msprobe");
  WriteText(json, "run", run);
  WriteText(json, "rule", alarm.rule());
  WriteText(json, "kind", alarm.kind());
  WriteText(json, "rank", RankName(alarm.rank()));
  WriteText(json, "series", alarm.series());
  WriteText(json, "alarm", Cat(alarm.number()));
  json.EndObject();
  json.Name("annotations");
  json.StartObject();
  WriteText(json, "summary", SummaryOf(run, alarm));
  WriteText(json, "why", alarm.why());
  WriteText(json, "step", Cat(alarm.step()));
  WriteText(json, "last_step", Cat(alarm.last_step()));
  WriteText(json, "offences", Cat(alarm.offences()));
  json.EndObject();
  const absl::Time starts = absl::FromUnixMicros(alarm.raised_unix_us());
  WriteText(json, "startsAt", TimeText(starts));
  WriteText(json, "endsAt", TimeText(ends));
  json.EndObject();
}

auto LabelsOf(const v1::Alarm& alarm) { return std::tuple(alarm.rank().kind(), alarm.rank().number(), alarm.series()); }

}  // namespace

Alertmanager::Alertmanager(const HttpUrl& url) : NoticeReceiver("alertmanager", OfApi(url)) {}

absl::Time Alertmanager::EndOf(const v1::Alarm& alarm) const {
  return std::max(absl::FromUnixMicros(alarm.ended_unix_us()),
                  absl::FromUnixMicros(alarm.raised_unix_us()) + kShortest);
}

NoticeReceiver::Request Alertmanager::RequestFor(const Notice& notice, absl::Time now) const {
  JsonWriter json(/*strict=*/true);
  json.StartArray();
  if (notice.told != nullptr && LabelsOf(*notice.told) != LabelsOf(notice.alarm)) {
    WriteAlert(json, notice.run, *notice.told, now);
  }
  const bool goes_on = notice.alarm.ended_unix_us() == 0;
  WriteAlert(json, notice.run, notice.alarm, goes_on ? now + kSilence : EndOf(notice.alarm));
  json.EndArray();
  return {{}, json.Take()};
}

}  // namespace msprobe::server
