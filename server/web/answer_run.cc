#include <algorithm>
#include <map>
#include <string>

#include "server/format/json/json_cursor.h"
#include "server/format/storage/key.h"
#include "server/shards/run_view.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kMaxProcesses = 64;
constexpr uint32_t kMaxCharacters = 1 << 20;  // of the configuration

void WriteProcess(JsonWriter& json, const RecordSource& source) {
  const v1::Hello& hello = source.hello();
  json.StartObject();
  WriteTexts(json, {{"rank", RankName(source.rank())},
                    {"host", hello.host()},
                    {"program", hello.program()},
                    {"framework", source.settings().framework()},
                    {"framework_version", hello.framework_version()},
                    {"agent_version", hello.agent_version()},
                    {"commit", hello.checkout().commit()},
                    {"branch", hello.checkout().branch()}});
  json.Name("process");
  json.Uint(hello.process_id());
  json.Name("started_unix_us");
  json.Int64(hello.started_unix_us());
  json.Name("devices");
  json.StartArray();
  for (const std::string& device : hello.devices()) json.Text(device);
  json.EndArray();
  json.Name("environment");
  json.StartArray();
  for (const v1::EnvironmentVariable& variable : hello.environment()) {
    json.StartArray();
    json.Text(variable.name());
    json.Text(variable.value());
    json.EndArray();
  }
  json.EndArray();
  json.EndObject();
}

}  // namespace

// Who made a run, as its processes said when they began: {"task", "level", "summary_mode", "dump_path", "config",
// "processes": [{"rank", "host", "program", "framework", "framework_version", "agent_version", "commit",
// "branch", "process", "started_unix_us", "devices": [text, ...], "environment": [[name, value], ...]}, ...],
// "other_processes"}. "config" is the configuration file's text. Settings are those of the last step of the first rank.
// At most `processes` (kMaxProcesses) are told, "other_processes" counts the rest; of "config" at most the first
// `characters`.
absl::Status AnswerRun(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  auto processes = query.Number("processes", kMaxProcesses);
  auto characters = query.Number("characters", kMaxCharacters);
  for (const absl::Status& status : {run.status(), processes.status(), characters.status()}) {
    if (!status.ok()) return status;
  }
  auto view = RunView::Open(context.query.shards(), *run);
  if (!view.ok()) return view.status();
  std::map<uint32_t, const ShownStep*> latest;  // by rank
  for (const ShownStep& step : view->steps()) latest[step.key.rank] = &step;
  json.StartObject();
  size_t told = 0;
  for (const auto& [rank, step] : latest) {
    if (told == std::min(*processes, kMaxProcesses)) break;
    if (context.cancelled()) return PeerGone();
    auto source = view->Records(*step);
    if (!source.ok()) return source.status();
    if (told++ == 0) {
      const v1::CaptureSettings& settings = (*source)->settings();
      const std::string config = settings.config_json().substr(0, std::min(*characters, kMaxCharacters));
      WriteTexts(json, {{"task", settings.task()},
                        {"level", settings.level()},
                        {"summary_mode", settings.summary_mode()},
                        {"dump_path", settings.dump_path()},
                        {"config", config.substr(0, Utf8Prefix(config))}});
      json.Name("processes");
      json.StartArray();
    }
    WriteProcess(json, **source);
  }
  if (told == 0) {
    json.Name("processes");
    json.StartArray();
  }
  json.EndArray();
  json.Name("other_processes");
  json.Uint64(latest.size() - told);
  json.EndObject();
  return absl::OkStatus();
}

}  // namespace msprobe::server
