#include <zlib.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/core/shell_word.h"
#include "rapidjson/document.h"
#include "server/format/cat.h"
#include "server/jobs/job_queue.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kKind = "check";
// Results that one answer reads, and rows that it has at most.
constexpr uint64_t kMostResults = 20'000;
constexpr uint32_t kMostRows = 1000;
// A result has at most 64 KiB, of which zlib makes at most so much.
constexpr size_t kMostBytes = size_t{64} << 20;

constexpr std::array<const char*, 9> kTexts = {"name",   "operation", "policy", "rule",  "dtype",
                                               "inputs", "reason",    "stack",  "repeat"};
constexpr std::array<const char*, 4> kNumbers = {"measured", "limit", "worst_output", "worst_golden"};
constexpr std::array<const char*, 2> kLists = {"shape", "worst_index"};

// The parts of an item's name, "step3/rank0/Functional.linear.0.forward".
struct CallPlace {
  std::string step, rank, record;
};

CallPlace PlaceOf(const std::string& item) {
  const size_t rank = item.find('/');
  const size_t record = rank == std::string::npos ? rank : item.find('/', rank + 1);
  if (record == std::string::npos || item.rfind("step", 0) != 0) return {"", "", item};
  return {item.substr(4, rank - 4), item.substr(rank + 1, record - rank - 1), item.substr(record + 1)};
}

// What zlib made of it; nothing: this is no such thing.
std::optional<std::string> Inflated(const std::string& packed) {
  std::string text(std::max<size_t>(4096, 8 * packed.size()), '\0');
  while (text.size() <= kMostBytes) {
    uLongf size = text.size();
    const int code = uncompress(reinterpret_cast<Bytef*>(text.data()), &size,
                                reinterpret_cast<const Bytef*>(packed.data()), packed.size());
    if (code == Z_OK) {
      text.resize(size);
      return text;
    }
    if (code != Z_BUF_ERROR) return std::nullopt;
    text.resize(4 * text.size());
  }
  return std::nullopt;
}

std::string VerdictOf(const v1::ItemResult& result) {
  if (result.outcome() == v1::OUTCOME_CRASHED) return "crashed";
  if (result.outcome() == v1::OUTCOME_FAILED) return "error";
  return result.verdict();
}

bool Matches(std::string_view wanted, std::string_view verdict) {
  if (wanted.empty()) return true;
  if (wanted == "wrong") return verdict == "fail" || verdict == "error" || verdict == "crashed";
  return wanted == verdict;
}

// A call that has no rows of its own: it crashed, or its worker could not check it.
void WriteWithoutRows(JsonWriter& json, const v1::ItemResult& result, const CallPlace& place, const v1::Job& job) {
  rapidjson::Document options;
  options.Parse<rapidjson::kParseIterativeFlag>(job.options().c_str());
  const auto option = [&](const char* name) {
    const bool known = !options.HasParseError() && options.IsObject() && options.HasMember(name);
    return known && options[name].IsString() ? std::string(options[name].GetString()) : std::string();
  };
  std::string forward = place.record;
  constexpr std::string_view kBackward = ".backward";
  if (forward.ends_with(kBackward)) forward.replace(forward.size() - kBackward.size(), kBackward.size(), ".forward");
  std::string repeat;
  if (!place.step.empty()) {
    repeat =
        Cat("msprobe-client check ", core::ShellWord(option("shown").empty() ? job.run() : option("shown")), " --step ",
            core::ShellWord(place.step), " --rank ", core::ShellWord(place.rank), " --name ", core::ShellWord(forward));
    if (!option("device").empty()) repeat += Cat(" --device ", core::ShellWord(option("device")));
  }
  json.StartObject();
  WriteTexts(json, {{"item", result.name()},
                    {"step", place.step},
                    {"rank", place.rank},
                    {"record", place.record},
                    {"name", place.record},
                    {"verdict", VerdictOf(result)},
                    {"reason", result.message()},
                    {"repeat", repeat}});
  json.EndObject();
}

void WriteRow(JsonWriter& json, const rapidjson::Value& row, std::string_view verdict, const v1::ItemResult& result,
              const CallPlace& place) {
  json.StartObject();
  WriteTexts(json, {{"item", result.name()},
                    {"step", place.step},
                    {"rank", place.rank},
                    {"record", place.record},
                    {"verdict", std::string(verdict)}});
  for (const char* name : kTexts) {
    const auto found = row.FindMember(name);
    if (found == row.MemberEnd() || !found->value.IsString() || found->value.GetStringLength() == 0) continue;
    json.Name(name);
    json.Text({found->value.GetString(), found->value.GetStringLength()});
  }
  for (const char* name : kNumbers) {
    const auto found = row.FindMember(name);
    if (found == row.MemberEnd() || !found->value.IsNumber()) continue;
    json.Name(name);
    WriteNumber(json, found->value.GetDouble());
  }
  for (const char* name : kLists) {
    const auto found = row.FindMember(name);
    if (found == row.MemberEnd() || !found->value.IsArray()) continue;
    json.Name(name);
    json.StartArray();
    for (const auto& part : found->value.GetArray()) json.Int64(part.IsInt64() ? part.GetInt64() : 0);
    json.EndArray();
  }
  json.EndObject();
}

// Writes the rows of a result with the verdict, at most `most` of them. Returns how many.
uint32_t WriteRows(JsonWriter& json, const v1::ItemResult& result, const v1::Job& job, std::string_view wanted,
                   uint32_t most) {
  const CallPlace place = PlaceOf(result.name());
  rapidjson::Document rows;
  if (result.outcome() == v1::OUTCOME_DONE) {
    const std::optional<std::string> text = Inflated(result.result());
    if (text) rows.Parse<rapidjson::kParseNanAndInfFlag | rapidjson::kParseIterativeFlag>(text->c_str());
  }
  if (rows.HasParseError() || !rows.IsArray()) {
    WriteWithoutRows(json, result, place, job);
    return 1;
  }
  uint32_t written = 0;
  for (const rapidjson::Value& row : rows.GetArray()) {
    if (!row.IsObject() || written == most) continue;
    const auto found = row.FindMember("verdict");
    if (found == row.MemberEnd() || !found->value.IsString() || !Matches(wanted, found->value.GetString())) continue;
    WriteRow(json, row, found->value.GetString(), result, place);
    ++written;
  }
  return written;
}

void WriteJob(JsonWriter& json, const v1::Job& job) {
  json.StartObject();
  WriteTexts(json, {{"title", job.title()},
                    {"state", job.state() == v1::Job::CANCELLED  ? "cancelled"
                              : job.state() == v1::Job::FINISHED ? "finished"
                              : job.state() == v1::Job::SEALED   ? "sealed"
                                                                 : "open"}});
  for (const auto& [name, value] : {std::pair<const char*, uint64_t>{"job", job.job()},
                                    {"items", job.items()},
                                    {"results", job.done() + job.failed() + job.crashed()}}) {
    json.Name(name);
    json.Uint64(value);
  }
  json.EndObject();
}

}  // namespace

// What checks of operators have found: {"jobs": [{"title", "state", "job", "items", "results"}, ...], "job", "next",
// "more", "counts": {verdict: calls}, "rows": [...], "left_out"}. `job`: one of the run's; absent: the latest. `after`:
// results that were read before; `next` says how many that are now, and `more` that others can be read at once. The
// counts are of the results in between, by the worst verdict of a call. The rows are those of `verdict` ("wrong": fail,
// error and crashed; empty: any) whose item has `name` in its name, at most `most`; `left_out` counts calls beyond.
absl::Status AnswerVerdicts(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  auto number = query.Number("job", 0);
  auto after = query.Number("after", 0);
  auto most = query.Number("most", 200);
  for (const absl::Status& status : {run.status(), number.status(), after.status(), most.status()}) {
    if (!status.ok()) return status;
  }
  JobQueue* const queue = context.query.jobs;
  std::vector<v1::Job> jobs;
  if (queue != nullptr) {
    v1::ListJobsRequest request;
    request.set_run(*run);
    auto listed = queue->List(request);
    if (!listed.ok()) return listed.status();
    for (const v1::Job& job : listed->jobs()) {
      if (job.kind() == kKind) jobs.push_back(job);
    }
  }
  json.StartObject();
  json.Name("jobs");
  json.StartArray();
  for (const v1::Job& job : jobs) WriteJob(json, job);
  json.EndArray();
  const auto chosen =
      *number == 0 ? jobs.end() - (jobs.empty() ? 0 : 1)
                   : std::find_if(jobs.begin(), jobs.end(), [&](const v1::Job& job) { return job.job() == *number; });
  if (chosen == jobs.end()) {
    json.EndObject();
    if (*number == 0) return absl::OkStatus();
    return absl::NotFoundError(Cat("run ", *run, " has no job ", *number, " of kind check"));
  }
  v1::ListJobsRequest with_options;
  with_options.set_job(chosen->job());
  auto job = queue->List(with_options);
  if (!job.ok()) return job.status();

  const std::string wanted = query.Text("verdict"), name = query.Text("name");
  std::map<std::string, uint64_t> counts;
  uint64_t next = *after, left_out = 0;
  uint32_t room = std::min(*most, kMostRows);
  bool full = false;
  json.Name("rows");
  json.StartArray();
  v1::ReadResultsRequest results;
  results.set_job(chosen->job());
  results.set_after(*after);
  absl::Status status = queue->ReadResults(results, context.cancelled, [&](const v1::ItemResult& result) {
    full = next - *after >= kMostResults;
    if (full) return false;
    ++next;
    const std::string verdict = VerdictOf(result);
    ++counts[verdict];
    if (!Matches(wanted, verdict) || result.name().find(name) == std::string::npos) return true;
    if (room == 0) ++left_out;
    if (room > 0) room -= WriteRows(json, result, job->jobs(0), wanted, room);
    return true;
  });
  if (!status.ok() && !full) return status;
  json.EndArray();
  json.Name("counts");
  json.StartObject();
  for (const auto& [verdict, calls] : counts) {
    json.Name(verdict);
    json.Uint64(calls);
  }
  json.EndObject();
  json.Name("more");
  json.Bool(full);
  for (const auto& [key, value] :
       {std::pair<const char*, uint64_t>{"job", chosen->job()}, {"next", next}, {"left_out", left_out}}) {
    json.Name(key);
    json.Uint64(value);
  }
  json.EndObject();
  return absl::OkStatus();
}

}  // namespace msprobe::server
