#include <string>
#include <vector>

#include "server/format/storage/key.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

void WriteList(JsonWriter& json, const char* name, const std::vector<std::string>& texts) {
  json.Name(name);
  json.StartArray();
  for (const std::string& text : texts) json.Text(text);
  json.EndArray();
}

void WriteAlarm(JsonWriter& json, const v1::Alarm& alarm) {
  std::vector<std::string> ranks;
  for (const v1::Rank& rank : alarm.ranks()) ranks.push_back(RankName(rank));
  json.StartObject();
  WriteTexts(json, {{"rule", alarm.rule()},
                    {"kind", alarm.kind()},
                    {"rank", RankName(alarm.rank())},
                    {"series", alarm.series()},
                    {"why", alarm.why()}});
  for (const auto& [name, value] : {std::pair<const char*, uint64_t>{"number", alarm.number()},
                                    {"step", alarm.step()},
                                    {"last_step", alarm.last_step()},
                                    {"offences", alarm.offences()}}) {
    json.Name(name);
    json.Uint64(value);
  }
  for (const auto& [name, value] : {std::pair<const char*, double>{"value", alarm.value()}, {"limit", alarm.limit()}}) {
    json.Name(name);
    WriteNumber(json, value);
  }
  json.Name("ended");
  json.Bool(alarm.ended_unix_us() != 0);
  WriteList(json, "ranks", ranks);
  WriteList(json, "others", {alarm.others().begin(), alarm.others().end()});
  json.EndObject();
}

}  // namespace

// The alarms of a run, in order of number: [{"rule", "kind", "rank", "series", "why", "number", "step", "last_step",
// "offences", "value", "limit", "ended", "ranks": [...], "others": [...]}, ...].
absl::Status AnswerAlarms(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  if (!run.ok()) return run.status();
  v1::ListAlarmsRequest request;
  request.set_run(*run);
  json.StartArray();
  absl::Status status = ListAlarms(context.query, request, context.cancelled, [&json](const v1::Alarm& alarm) {
    WriteAlarm(json, alarm);
    return true;
  });
  if (!status.ok()) return status;
  json.EndArray();
  return absl::OkStatus();
}

}  // namespace msprobe::server
