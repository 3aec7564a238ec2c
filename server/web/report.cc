#include "server/web/report.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "rapidjson/document.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/web/assets.h"
#include "server/web/script_bundle.h"

namespace msprobe::server {
namespace {

using Parameters = std::map<std::string, std::string>;

constexpr const char* kTensors = "*.forward*.output*";
constexpr const char* kStatistic = "norm";
constexpr size_t kRecords = 12;  // with their stacks and trends

// The answers that a report shows, with the questions that they answer.
class RecordedAnswers {
 public:
  RecordedAnswers(const WebContext& context, const ReportQuestion& question)
      : context_(context), question_(question), json_(/*strict=*/true) {
    json_.StartArray();
  }

  // Asks a question of the page. `read` takes the answer, too.
  absl::Status Add(std::string_view kind, const Parameters& parameters, rapidjson::Document* read = nullptr) {
    const std::span<const WebQuestion> questions = WebQuestions();
    const auto question =
        std::find_if(questions.begin(), questions.end(), [&](const WebQuestion& one) { return one.name == kind; });
    JsonWriter answer(/*strict=*/true);
    if (absl::Status status = question->answer(context_, WebQuery(parameters), answer); !status.ok()) return status;
    const std::string text = answer.Take();
    if (read != nullptr) read->Parse(text.data(), text.size());
    json_.StartObject();
    json_.Name("kind");
    json_.Text(kind);
    json_.Name("asked");
    json_.StartObject();
    for (const auto& [name, value] : parameters) {
      json_.Name(name);
      json_.Text(name == "run" || name == "golden" ? TitleOf(value) : value);
    }
    json_.EndObject();
    json_.Name("answer");
    json_.RawValue(text.data(), text.size(), rapidjson::kObjectType);
    json_.EndObject();
    return absl::OkStatus();
  }

  std::string Take() {
    json_.EndArray();
    return json_.Take();
  }

 private:
  // An answer stands under the title of its run.
  const std::string& TitleOf(const std::string& run) const {
    return run == question_.run ? question_.run_title : question_.golden_title;
  }

  const WebContext& context_;
  const ReportQuestion& question_;
  JsonWriter json_;
};

// A record that the report shows.
struct Shown {
  std::string rank, op, tensor;
  uint32_t step = 0;
  friend auto operator<=>(const Shown&, const Shown&) = default;
};

std::string TextOf(const rapidjson::Value& object, const char* name) {
  const auto found = object.FindMember(name);
  return found == object.MemberEnd() || !found->value.IsString() ? std::string() : found->value.GetString();
}

Shown ShownOf(const rapidjson::Value& found, const char* tensor) {
  return {TextOf(found, "rank"), TextOf(found, "op"), TextOf(found, tensor), found["step"].GetUint()};
}

class Report {
 public:
  Report(const WebContext& context, const ReportQuestion& question)
      : context_(context), question_(question), answers_(context, question) {}

  absl::StatusOr<std::string> Make() {
    for (auto part :
         {&Report::AddRuns, &Report::AddOrigins, &Report::AddComparison, &Report::AddPictures, &Report::AddRecords}) {
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
    for (const std::string& run : {question_.run, question_.golden}) {
      if (run.empty()) continue;
      if (status = answers_.Add("runs", {{"run", run}}); !status.ok()) return status;
      if (status = answers_.Add("run", {{"run", run}}); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status AddOrigins() {
    rapidjson::Document verdict, origins;
    absl::Status status = answers_.Add("verdict", {{"run", question_.run}}, &verdict);
    if (!status.ok()) return status;
    if (verdict.HasMember("origin")) Show(ShownOf(verdict["origin"], "tensor"));
    status = answers_.Add("origins", {{"run", question_.run}}, &origins);
    if (!status.ok()) return status;
    for (const rapidjson::Value& origin : origins.GetArray()) Show(ShownOf(origin, "tensor"));
    return answers_.Add("overflow", {{"run", question_.run}});
  }

  absl::Status AddComparison() {
    if (question_.golden.empty()) return absl::OkStatus();
    const Parameters sides = {{"run", question_.run}, {"golden", question_.golden}};
    rapidjson::Document divergence;
    if (absl::Status status = answers_.Add("divergence", sides, &divergence); !status.ok()) return status;
    if (divergence.HasMember("divergence")) {
      Shown shown = ShownOf(divergence["divergence"], "culprit");
      if (!shown.tensor.starts_with(shown.op + ".")) shown.tensor.clear();
      shown_.insert(shown_.begin(), shown);
    }
    return answers_.Add("differences", sides);
  }

  // Of the rank and step of what went wrong first, else of the last ones.
  absl::Status AddPictures() {
    const Shown& of = shown_.empty() ? last_ : shown_.front();
    absl::Status status =
        answers_.Add("modules", {{"run", question_.run}, {"rank", of.rank}, {"step", std::to_string(of.step)}});
    if (!status.ok()) return status;
    Parameters map = {{"run", question_.run}, {"rank", of.rank}, {"statistic", kStatistic}, {"tensors", kTensors}};
    map.insert({{"columns", "300"}, {"rows", "200"}});
    if (status = answers_.Add("heat_map", map); !status.ok()) return status;
    if (!question_.golden.empty()) {
      map["golden"] = question_.golden;
      // The golden side may lack this rank.
      status = answers_.Add("heat_map", map);
      if (!status.ok() && !absl::IsInvalidArgument(status)) return status;
      map.erase("golden");
    }
    if (ranks_.size() < 2) return absl::OkStatus();
    map.erase("rank");
    return answers_.Add("heat_map", map);
  }

  absl::Status AddRecords() {
    for (const Shown& shown : shown_) {
      const std::string step = std::to_string(shown.step);
      absl::Status status =
          answers_.Add("record", {{"run", question_.run}, {"rank", shown.rank}, {"step", step}, {"name", shown.op}});
      // The golden side alone has an operation that the target lacks.
      if (absl::IsNotFound(status)) continue;
      if (!status.ok()) return status;
      if (shown.tensor.empty()) continue;
      Parameters trend = {{"run", question_.run}, {"rank", shown.rank}, {"tensor", shown.tensor}};
      trend.insert({{"statistic", kStatistic}, {"columns", "300"}});
      if (!question_.golden.empty()) trend["golden"] = question_.golden;
      status = answers_.Add("trend", trend);
      if (!status.ok() && !absl::IsInvalidArgument(status) && !absl::IsNotFound(status)) return status;
    }
    return absl::OkStatus();
  }

  void Show(Shown shown) {
    if (shown_.size() < kRecords && std::find(shown_.begin(), shown_.end(), shown) == shown_.end()) {
      shown_.push_back(std::move(shown));
    }
  }

  std::string Html() {
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
    const std::string script = BundledScript("/report.js", "/server.js", "/recorded.js");
    return absl::StrReplaceAll(Abseil(FindAsset("/report.html")->content),
                               {{"@STYLE@", Abseil(FindAsset("/style.css")->content)},
                                {"@ABOUT@", Inert(about.Take())},
                                {"@ANSWERS@", Inert(answers_.Take())},
                                {"@SCRIPT@", script}});
  }

  static absl::string_view Abseil(std::string_view text) { return {text.data(), text.size()}; }

  // JSON that ends no element of HTML, whatever its texts are.
  static std::string Inert(const std::string& json) { return absl::StrReplaceAll(json, {{"<", "\\u003c"}}); }

  const WebContext& context_;
  const ReportQuestion& question_;
  RecordedAnswers answers_;
  std::set<uint32_t> ranks_;
  Shown last_;                // rank and step of the last
  std::vector<Shown> shown_;  // what went wrong first, first
};

}  // namespace

absl::StatusOr<std::string> MakeReport(const WebContext& context, const ReportQuestion& question) {
  return Report(context, question).Make();
}

}  // namespace msprobe::server
