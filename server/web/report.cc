#include "server/web/report.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/core/shell_word.h"
#include "rapidjson/document.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/web/assets.h"
#include "server/web/model_graphs.h"
#include "server/web/recorded_answers.h"
#include "server/web/script_bundle.h"

namespace msprobe::server {
namespace {

using Parameters = RecordedAnswers::Parameters;

constexpr const char* kTensors = "*.forward*.output*";
constexpr const char* kStatistic = "norm";
constexpr size_t kRecords = 12;  // with their stacks and trends

// Bytes. What one answer may take leaves room for those after it.
constexpr size_t kAbout = 60'000;
constexpr size_t kMaxTitle = 4096;
constexpr size_t kMaxNames = 4096;  // of one record that is shown

constexpr const char* kEverywhere = "4000000000";  // a window around any picture

// rank3 as --rank takes it.
std::string RankWord(const std::string& rank) { return rank.starts_with("rank") ? rank.substr(4) : rank; }

// A record that the report shows.
struct Shown {
  std::string rank, op, tensor;
  uint32_t step = 0;
  friend bool operator==(const Shown&, const Shown&) = default;
};

std::string TextOf(const rapidjson::Value& object, const char* name) {
  const auto found = object.FindMember(name);
  return found == object.MemberEnd() || !found->value.IsString() ? std::string() : found->value.GetString();
}

Shown ShownOf(const rapidjson::Value& found, const char* tensor) {
  return {TextOf(found, "rank"), TextOf(found, "op"), TextOf(found, tensor), found["step"].GetUint()};
}

// Adds the names of the tensors in a value of record.proto, in its order; as record.js names them.
void AddTensors(const rapidjson::Value& value, const std::string& name, std::vector<std::string>& names) {
  if (value.HasMember("tensor")) names.push_back(name);
  if (value.HasMember("list") && value["list"].HasMember("items")) {
    size_t i = 0;
    for (const rapidjson::Value& item : value["list"]["items"].GetArray()) AddTensors(item, Cat(name, ".", i++), names);
  }
  if (!value.HasMember("dict") || !value["dict"].HasMember("entries")) return;
  for (const rapidjson::Value& entry : value["dict"]["entries"].GetArray()) {
    const std::string key = TextOf(entry, "key");
    if (entry.HasMember("value")) AddTensors(entry["value"], Cat(name, ".", key), names);
  }
}

// Of the records that AnswerRecord gave: the tensor that is shown, or, where that is an argument or none is named, the
// first. Empty: there is none.
std::string TensorOf(const rapidjson::Document& records, const Shown& shown) {
  if (!records.IsArray() || records.Empty() || !records[0].HasMember("fields")) return "";
  const rapidjson::Value& fields = records[0]["fields"];
  if (!fields.HasMember("dict") || !fields["dict"].HasMember("entries")) return "";
  std::vector<std::string> names;
  for (const rapidjson::Value& entry : fields["dict"]["entries"].GetArray()) {
    const std::string key = TextOf(entry, "key");
    const std::string name = key.starts_with("input_") ? "input" : key;
    if (entry.HasMember("value")) AddTensors(entry["value"], Cat(shown.op, ".", name), names);
  }
  if (std::find(names.begin(), names.end(), shown.tensor) != names.end()) return shown.tensor;
  return names.empty() ? "" : names.front();
}

// Of a record of AnswerRecord.
std::string RankOf(const rapidjson::Value& record) {
  v1::Rank rank;
  const auto found = record.FindMember("rank");
  if (found == record.MemberEnd()) return RankName(rank);
  if (TextOf(found->value, "kind") == v1::Rank::Kind_Name(v1::Rank::RANK)) rank.set_kind(v1::Rank::RANK);
  if (found->value.HasMember("number")) rank.set_number(found->value["number"].GetUint());
  return RankName(rank);
}

class Report {
 public:
  Report(const WebContext& context, const ReportQuestion& question)
      : context_(context),
        question_(question),
        page_(Page()),
        answers_(context_, question, kMaxReportBytes - page_.size() - kAbout) {
    context_.graphs = &graphs_;
  }

  absl::StatusOr<std::string> Make() {
    for (auto part :
         {&Report::AddRuns, &Report::AddOrigins, &Report::AddDivergence, &Report::AddFirstRecord, &Report::AddGraphs,
          &Report::AddDifferences, &Report::AddModules, &Report::AddMaps, &Report::AddOtherRecords}) {
      if (context_.cancelled()) return absl::CancelledError("nobody waits for the report");
      if (absl::Status status = (this->*part)(); !status.ok()) return status;
    }
    return Html();
  }

 private:
  absl::Status AddRuns() {
    v1::ListStepsRequest list;
    list.set_run(question_.run);
    absl::Status status = ListSteps(context_.query, list, [&](const v1::StepSummary& step) {
      ranks_.insert(RankCode(step.rank()));
      last_ = {RankName(step.rank()), "", "", step.step()};
      return true;
    });
    if (!status.ok()) return status;
    if (ranks_.empty()) return absl::NotFoundError(Cat("no step of ", question_.run_title, " has records"));
    for (const std::string& run : {question_.run, question_.golden}) {
      if (run.empty()) continue;
      auto added = answers_.Add({"runs", {{"run", run}}, 80'000});
      if (!added.ok()) return added.status();
      if (*added < 0) Lack("Steps, ranks and tensors of a run", {"runs", "--format", "json"});
      added = answers_.Add({"run", {{"run", run}}, 60'000, {{}, {{"processes", "8"}, {"characters", "4000"}}}});
      if (!added.ok()) return added.status();
      if (*added != 0) Lack("All of who made a run", {"runs", "--format", "json"});
    }
    return absl::OkStatus();
  }

  absl::Status AddOrigins() {
    rapidjson::Document verdict, origins;
    auto added = answers_.Add({"verdict", {{"run", question_.run}}, 30'000}, &verdict);
    if (!added.ok()) return added.status();
    if (*added >= 0 && verdict.HasMember("origin")) Show(ShownOf(verdict["origin"], "tensor"));
    constexpr size_t kOrigins = 20;
    added = answers_.Add(
        {"origins", {{"run", question_.run}}, 60'000, {{{"limit", std::to_string(kOrigins)}}, {{"limit", "5"}}}},
        &origins);
    if (!added.ok()) return added.status();
    if (*added >= 0) {
      for (const rapidjson::Value& origin : origins.GetArray()) Show(ShownOf(origin, "tensor"));
    }
    if (*added != 0 || origins.Size() == kOrigins) {
      Lack("Further places where NaN or infinity began", {"overflow", question_.run_title});
    }
    added = answers_.Add({"overflow",
                          {{"run", question_.run}},
                          120'000,
                          {{}, {{"columns", "200"}, {"rows", "32"}}, {{"columns", "100"}, {"rows", "16"}}}});
    if (!added.ok()) return added.status();
    if (*added < 0) Lack("The picture of all ranks over steps", {"overflow", question_.run_title});
    return absl::OkStatus();
  }

  absl::Status AddDivergence() {
    if (question_.golden.empty()) return absl::OkStatus();
    rapidjson::Document divergence;
    auto added = answers_.Add({"divergence", Sides(), 60'000}, &divergence);
    if (!added.ok()) return added.status();
    if (*added < 0)
      Lack("Where the two differ first", {"first-divergence", question_.run_title, question_.golden_title});
    if (*added >= 0 && divergence.HasMember("divergence")) {
      Shown shown = ShownOf(divergence["divergence"], "culprit");
      if (!shown.tensor.starts_with(shown.op + ".")) shown.tensor.clear();
      shown_.insert(shown_.begin(), shown);
    }
    return absl::OkStatus();
  }

  absl::Status AddFirstRecord() { return shown_.empty() ? absl::OkStatus() : AddRecord(shown_.front(), 160'000); }

  // The server lays out as much of the graph as finds room; the page folds what is closed.
  absl::Status AddGraphs() {
    Parameters asked = {{"run", question_.run}, {"rank", Place().rank}, {"step", std::to_string(Place().step)}};
    asked.insert({{"statistic", kStatistic}, {"wide", kEverywhere}, {"high", kEverywhere}});
    const auto is_absent = [](const absl::Status& status) {  // no modules in the step, or no such step on a side
      return absl::IsInvalidArgument(status) || absl::IsNotFound(status) || absl::IsFailedPrecondition(status);
    };
    absl::Status status = absl::NotFoundError("");
    if (!question_.golden.empty()) {
      Parameters beside = asked;
      beside.insert({{"golden", question_.golden}, {"side", "target"}});
      status = AddGraph(beside, "In the graph");
      beside["side"] = "golden";
      if (status.ok()) status = AddGraph(beside, "In the graph of the other side");
    }
    if (is_absent(status)) status = AddGraph(asked, "In the graph");
    return is_absent(status) ? absl::OkStatus() : status;
  }

  absl::Status AddGraph(const Parameters& asked, std::string_view where) {
    rapidjson::Document graph;
    const auto fill = [](const char* boxes) { return Parameters{{"fill", boxes}}; };
    auto added = answers_.Add({"graph", asked, 240'000, {fill("1000"), fill("400"), fill("100"), fill("20")}}, &graph);
    if (!added.ok()) return added.status();
    const uint64_t calls = *added < 0 ? 0 : graph["nodes"].GetUint64(), held = *added < 0 ? 0 : graph["boxes"].Size();
    if (*added >= 0 && calls == held) return absl::OkStatus();
    Lack(*added < 0 ? Cat(where, ": everything") : Cat(where, ": ", calls - held, " of ", calls, " calls"),
         {"graph", question_.run_title, question_.golden_title, "-o", "graphs"});
    return absl::OkStatus();
  }

  absl::Status AddDifferences() {
    if (question_.golden.empty()) return absl::OkStatus();
    rapidjson::Document found;
    auto added = answers_.Add(
        {"differences",
         Sides(),
         200'000,
         {{{"modules", "1000"}}, {{"limit", "50"}, {"modules", "200"}}, {{"limit", "10"}, {"modules", "20"}}}},
        &found);
    if (!added.ok()) return added.status();
    const std::vector<std::string> command = {"compare", question_.run_title, question_.golden_title};
    if (*added < 0) {
      Lack("All rows that differ", command);
      return absl::OkStatus();
    }
    const uint64_t differences = found["differences"].GetUint64(), rows = found["rows"].Size();
    if (differences > rows) Lack(Cat(differences - rows, " of ", differences, " rows that differ"), command);
    return absl::OkStatus();
  }

  absl::Status AddModules() {
    rapidjson::Document modules;
    auto added = answers_.Add({"modules",
                               {{"run", question_.run}, {"rank", Place().rank}, {"step", std::to_string(Place().step)}},
                               150'000,
                               {{{"limit", "1000"}}, {{"limit", "200"}}, {{"limit", "20"}}}},
                              &modules);
    if (!added.ok()) return added.status();
    const std::string others = *added < 0 ? "All" : std::to_string(modules["others"].GetUint64());
    if (others != "0") {
      Lack(Cat(others, " modules of the step"),
           {"records", question_.run_title, "--step", std::to_string(Place().step), "--rank", RankWord(Place().rank)});
    }
    return absl::OkStatus();
  }

  absl::Status AddMaps() {
    Parameters map = {{"run", question_.run}, {"rank", Place().rank}, {"statistic", kStatistic}, {"tensors", kTensors}};
    std::vector<Parameters> maps = {map};
    if (!question_.golden.empty()) {
      maps.push_back(map);
      maps.back()["golden"] = question_.golden;
    }
    if (ranks_.size() > 1) {
      maps.push_back(map);
      maps.back().erase("rank");
    }
    const auto size = [](const char* columns, const char* rows) {
      return Parameters{{"columns", columns}, {"rows", rows}};
    };
    for (const Parameters& asked : maps) {
      auto added = answers_.Add(
          {"heat_map", asked, 340'000, {size("150", "100"), size("60", "50"), size("30", "25"), size("10", "10")}});
      // The golden side may lack this rank.
      if (absl::IsInvalidArgument(added.status()) && asked.contains("golden")) continue;
      if (!added.ok()) return added.status();
      if (*added < 0) Lack("A heat map", {"trend", question_.run_title, kTensors, "--statistic", kStatistic});
    }
    return absl::OkStatus();
  }

  absl::Status AddOtherRecords() {
    for (size_t i = 1; i < shown_.size(); ++i) {
      if (absl::Status status = AddRecord(shown_[i], 60'000); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status AddRecord(const Shown& shown, size_t most) {
    const std::string step = std::to_string(shown.step);
    const Parameters asked = {{"run", question_.run}, {"rank", shown.rank}, {"step", step}, {"name", shown.op}};
    if (!records_.insert(asked).second)
      return AddTrend(question_.run, question_.golden, shown.rank, shown.tensor, most);
    rapidjson::Document mine, theirs;
    auto added =
        answers_.Add({"record", asked, most, {{}, {{"limit", "100"}}, {{"limit", "30"}}, {{"limit", "5"}}}}, &mine);
    // The golden side alone may have the operation, or the step.
    if (!added.ok() && !absl::IsNotFound(added.status())) return added.status();
    if (added.ok() && *added != 0) {
      Lack(Cat(*added < 0 ? "The record " : "All tensors and frames of ", shown.op),
           {"records", question_.run_title, "--step", step, "--rank", RankWord(shown.rank), "--name", shown.op,
            "--stack"});
    }
    if (!question_.golden.empty()) {
      Parameters beside = asked;
      beside.insert({{"golden", question_.golden}, {"side", "golden"}});
      auto golden = answers_.Add({"record", beside, most / 2, {{}, {{"limit", "100"}}, {{"limit", "30"}}}}, &theirs);
      if (!golden.ok() && !absl::IsNotFound(golden.status()) && !absl::IsInvalidArgument(golden.status())) {
        return golden.status();
      }
    }
    if (const std::string tensor = TensorOf(mine, shown); !tensor.empty()) {
      return AddTrend(question_.run, question_.golden, shown.rank, tensor, most);
    }
    const std::string tensor = TensorOf(theirs, shown);
    return tensor.empty() ? absl::OkStatus() : AddTrend(question_.golden, "", RankOf(theirs[0]), tensor, most);
  }

  absl::Status AddTrend(const std::string& run, const std::string& golden, const std::string& rank,
                        const std::string& tensor, size_t most) {
    if (tensor.empty()) return absl::OkStatus();
    Parameters trend = {{"run", run}, {"rank", rank}, {"tensor", tensor}, {"statistic", kStatistic}};
    if (!golden.empty()) trend["golden"] = golden;
    auto added = answers_.Add({"trend", trend, most / 2, {{{"columns", "300"}}, {{"columns", "60"}}}});
    if (absl::IsInvalidArgument(added.status()) || absl::IsNotFound(added.status())) return absl::OkStatus();
    if (!added.ok()) return added.status();
    if (*added < 0) {
      const std::string& title = run == question_.run ? question_.run_title : question_.golden_title;
      Lack(Cat("The trend of ", tensor), {"trend", title, tensor, "--statistic", kStatistic});
    }
    return absl::OkStatus();
  }

  void Show(Shown shown) {
    if (shown_.size() < kRecords && shown.op.size() + shown.tensor.size() < kMaxNames &&
        std::find(shown_.begin(), shown_.end(), shown) == shown_.end()) {
      shown_.push_back(std::move(shown));
    }
  }

  // Of what went wrong first, else the last one.
  const Shown& Place() const { return shown_.empty() ? last_ : shown_.front(); }
  Parameters Sides() const { return {{"run", question_.run}, {"golden", question_.golden}}; }

  void Lack(std::string_view what, const std::vector<std::string>& words) {
    std::string command = "msprobe-client";
    for (const std::string& word : words) {
      if (!word.empty()) command += Cat(" ", core::ShellWord(word));
    }
    answers_.Lack(what, command);
  }

  std::string About() const {
    JsonWriter about(/*strict=*/true);
    about.StartObject();
    WriteTexts(about, {{"run", question_.run_title},
                       {"golden", question_.golden_title},
                       {"statistic", kStatistic},
                       {"tensors", kTensors},
                       {"made", absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::Now(), absl::UTCTimeZone())}});
    about.Name("shown");
    about.StartArray();
    for (const Shown& shown : shown_) {
      about.StartObject();
      WriteTexts(about, {{"rank", shown.rank}, {"op", shown.op}, {"tensor", shown.tensor}});
      about.Name("step");
      about.Uint(shown.step);
      about.EndObject();
    }
    about.EndArray();
    about.EndObject();
    return RecordedAnswers::Inert(about.Take());
  }

  // Without the answers.
  static std::string Page() {
    return absl::StrReplaceAll(AbslView(FindAsset("/report.html")->content),
                               {{"@STYLE@", AbslView(FindAsset("/style.css")->content)},
                                {"@SCRIPT@", BundledScript("/report.js", "/server.js", "/recorded.js")}});
  }

  std::string Html() {
    std::string about = About();
    for (; about.size() > kAbout; about = About()) shown_.pop_back();
    return absl::StrReplaceAll(page_,
                               {{"@ABOUT@", about}, {"@LACKS@", answers_.Lacks()}, {"@ANSWERS@", answers_.Answers()}});
  }

  WebContext context_;
  const ReportQuestion& question_;
  ModelGraphs graphs_;
  const std::string page_;
  RecordedAnswers answers_;
  std::set<uint32_t> ranks_;
  std::set<Parameters> records_;  // that were asked for
  Shown last_;                    // rank and step of the last
  std::vector<Shown> shown_;      // what went wrong first, first
};

}  // namespace

absl::StatusOr<std::string> MakeReport(const WebContext& context, const ReportQuestion& question) {
  for (const std::string& title : {question.run_title, question.golden_title}) {
    if (title.size() > kMaxTitle) {
      return absl::InvalidArgumentError(Cat("a title has ", title.size(), " bytes, at most ", kMaxTitle));
    }
  }
  return Report(context, question).Make();
}

}  // namespace msprobe::server
