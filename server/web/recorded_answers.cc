#include "server/web/recorded_answers.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr size_t kRoomOfLacks = 8'000;  // bytes that answers leave free

// As it stands inside a string of JSON.
std::string Escaped(const std::string& text) {
  JsonWriter json(/*strict=*/true);
  json.Text(text);
  const std::string quoted = json.Take();
  return quoted.substr(1, quoted.size() - 2);
}

// An answer stands under the title of its run.
const std::string& TitleOf(const ReportQuestion& question, const std::string& run) {
  return run == question.run ? question.run_title : question.golden_title;
}

// A directory was uploaded as a run of a name that nothing else has; an answer may have it anywhere.
std::string WithTitles(const ReportQuestion& question, const std::string& answer) {
  std::vector<std::pair<std::string, std::string>> titles;
  for (const std::string& run : {question.run, question.golden}) {
    if (!run.empty() && run != TitleOf(question, run)) {
      titles.emplace_back(Escaped(run), Escaped(TitleOf(question, run)));
    }
  }
  return absl::StrReplaceAll(answer, titles);
}

}  // namespace

absl::StatusOr<int> RecordedAnswers::Add(const Part& part, rapidjson::Document* read) {
  const std::span<const WebQuestion> questions = WebQuestions();
  const auto question =
      std::find_if(questions.begin(), questions.end(), [&](const WebQuestion& one) { return one.name == part.kind; });
  for (size_t i = 0; i < part.sizes.size(); ++i) {
    Parameters parameters = part.parameters;
    parameters.insert(part.sizes[i].begin(), part.sizes[i].end());
    JsonWriter answer(/*strict=*/true);
    if (absl::Status status = question->answer(context_, WebQuery(parameters), answer); !status.ok()) return status;
    const std::string text = answer.Take();
    const size_t most = std::min(part.most, room_ - std::min(room_, kRoomOfLacks));
    if (!Take(answers_, Recorded(part, text), most)) continue;
    if (read != nullptr) read->Parse(text.data(), text.size());
    return static_cast<int>(i);
  }
  return kLeftOut;
}

std::string RecordedAnswers::Recorded(const Part& part, const std::string& answer) const {
  const std::string text = WithTitles(question_, answer);
  JsonWriter json(/*strict=*/true);
  json.StartObject();
  json.Name("kind");
  json.Text(part.kind);
  json.Name("asked");
  json.StartObject();
  for (const auto& [name, value] : part.parameters) {
    json.Name(name);
    json.Text(name == "run" || name == "golden" ? TitleOf(question_, value) : value);
  }
  json.EndObject();
  json.Name("answer");
  json.RawValue(text.data(), text.size(), rapidjson::kObjectType);
  json.EndObject();
  return json.Take();
}

void RecordedAnswers::Lack(std::string_view what, std::string_view command) {
  JsonWriter json(/*strict=*/true);
  json.StartObject();
  WriteTexts(json, {{"what", std::string(what)}, {"command", std::string(command)}});
  json.EndObject();
  Take(lacks_, json.Take(), room_);
}

bool RecordedAnswers::Take(std::string& list, const std::string& one, size_t most) {
  const std::string inert = Inert(one);
  const size_t size = inert.size() + 1;
  if (size > most) return false;
  list += Cat(list.empty() ? "" : ",", inert);
  room_ -= size;
  return true;
}

std::string RecordedAnswers::Inert(const std::string& json) { return absl::StrReplaceAll(json, {{"<", "\\u003c"}}); }

}  // namespace msprobe::server
