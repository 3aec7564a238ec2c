#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/query/opened_source.h"
#include "server/web/golden_side.h"
#include "server/web/model_graphs.h"
#include "server/web/open_modules.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kMaxBoxes = 1500;                      // of one answer
constexpr size_t kLinesOfABox = 2;                        // at most, on average
constexpr float kOverviewWide = 48, kOverviewHigh = 160;  // cells of the small picture at most
constexpr uint32_t kMaxFound = 200;
constexpr float kLeastWindow = 64;

absl::StatusOr<ModelGraphs::Question> QuestionOf(const WebQuery& query) {
  auto run = query.Required("run");
  auto rank = query.Rank();
  auto step = query.Number("step", 0);
  for (const absl::Status& status : {run.status(), rank.status(), step.status()}) {
    if (!status.ok()) return status;
  }
  ModelGraphs::Question question{*run, query.Text("golden"), {rank->kind(), rank->number()}, std::nullopt};
  if (!query.Text("step").empty()) question.step = *step;
  return question;
}

absl::StatusOr<std::set<int32_t>> OpenOf(const WebQuery& query, const ModelGraph& model) {
  std::set<int32_t> open;
  const std::string text = query.Text("open");
  for (const absl::string_view each : absl::StrSplit(text, '.', absl::SkipEmpty())) {
    uint32_t key = 0;
    if (!absl::SimpleHexAtoi(each, &key)) {
      return absl::InvalidArgumentError(
          Cat("open=", StdView(each), " is no key of a module: 1 to 8 hexadecimal digits"));
    }
    for (const int32_t node : model.ModulesOf(key)) open.insert(node);
    if (open.size() > kMaxOpen) {
      return absl::InvalidArgumentError(Cat("more than ", kMaxOpen, " modules are open; close some"));
    }
  }
  return open;
}

std::string KeyText(const ModelGraph& model, int32_t node) {
  const uint32_t key = model.KeyOf(node);
  return key == 0 ? std::string() : absl::StrCat(absl::Hex(key));
}

// The whole picture in few cells: 0 where nothing is, else 1 + the worst mark of the boxes there.
void WriteOverview(JsonWriter& json, const ModelGraph& model, const GraphPicture& picture) {
  const LayeredLayout::Size size = picture.size();
  const float cell = std::max({size.wide / kOverviewWide, size.high / kOverviewHigh, 1.0F});
  const auto wide = static_cast<size_t>(size.wide / cell) + 1, high = static_cast<size_t>(size.high / cell) + 1;
  std::string cells(wide * high, '\0');
  for (const GraphPicture::Box& box : picture.boxes()) {
    if (box.open) continue;
    const char mark = static_cast<char>(1 + static_cast<int>(model.MarkOf(box.node)));
    const auto right = static_cast<size_t>((box.x + box.wide) / cell),
               below = static_cast<size_t>((box.y + box.high) / cell);
    for (auto y = static_cast<size_t>(box.y / cell); y <= std::min(below, high - 1); ++y) {
      for (auto x = static_cast<size_t>(box.x / cell); x <= std::min(right, wide - 1); ++x) {
        char& at = cells[y * wide + x];
        at = std::max(at, mark);
      }
    }
  }
  json.Name("overview");
  json.StartObject();
  json.Name("cell");
  json.Double(cell);
  json.Name("wide");
  json.Uint64(wide);
  json.Name("cells");
  json.Text(absl::Base64Escape(cells));
  json.EndObject();
}

void WriteVerdict(JsonWriter& json, const std::optional<Verdict>& verdict) {
  json.Int(verdict ? static_cast<int>(*verdict) : -1);
}

void WritePlace(JsonWriter& json, std::initializer_list<float> lengths) {
  for (const float length : lengths) json.Int(static_cast<int>(std::lround(length)));
}

void WriteNode(JsonWriter& json, const ModelGraph& model, int32_t number, Statistic statistic) {
  const GraphNode& node = model.graph().node(number);
  const ModelGraph::Facts& facts = model.facts(number);
  json.Text(node.name);
  json.Text(node.entry < 0 ? std::string_view() : model.TensorOf(number));
  json.Bool(node.entry >= 0);
  json.Int(static_cast<int>(node.kind));
  json.Int(node.parent);
  json.Uint(facts.inside);
  json.Int(static_cast<int>(facts.level));
  json.Int(static_cast<int>(facts.level_inside));
  WriteVerdict(json, facts.verdict);
  WriteVerdict(json, facts.verdict_inside);
  json.Int(facts.partner);
  if (const std::optional<float> value = model.ValueOf(number, statistic)) {
    WriteNumber(json, *value);
  } else {
    json.Null();
  }
  json.Int(static_cast<int>(model.MarkOf(number)));
  json.Text(KeyText(model, number));
}

// Leaves at most `most`, evenly, but keeps all that are `kept` as far as there is room.
template <typename Kept>
void Thin(std::vector<uint32_t>& shown, size_t most, Kept kept) {
  if (shown.size() <= most) return;
  const auto middle = std::stable_partition(shown.begin(), shown.end(), kept);
  const auto first = static_cast<size_t>(middle - shown.begin());
  if (first >= most) {
    shown.resize(most);
  } else {
    const size_t rest = shown.size() - first, room = most - first;
    for (size_t i = 0; i < room; ++i) shown[first + i] = shown[first + i * rest / room];
    shown.resize(most);
  }
  std::sort(shown.begin(), shown.end());
}

void WriteBoxes(JsonWriter& json, const ModelGraph& model, const GraphPicture& picture,
                const GraphPicture::Window& window, Statistic statistic, size_t most) {
  std::vector<uint32_t> shown = picture.BoxesIn(window);
  const size_t all = shown.size();
  Thin(shown, most, [&](uint32_t i) {
    const GraphPicture::Box& box = picture.boxes()[i];
    return box.open || model.MarkOf(box.node) >= ModelGraph::Mark::kBad;
  });
  json.Name("boxes");
  json.StartArray();
  for (const uint32_t i : shown) {
    const GraphPicture::Box& box = picture.boxes()[i];
    json.StartArray();
    json.Int(box.node);
    WritePlace(json, {box.x, box.y, box.wide, box.high});
    json.Bool(box.open);
    WriteNode(json, model, box.node, statistic);
    json.EndArray();
  }
  json.EndArray();
  json.Name("left_out");
  json.Uint64(all - shown.size());
}

void WriteLines(JsonWriter& json, const ModelGraph& model, const GraphPicture& picture,
                const GraphPicture::Window& window, size_t most) {
  const auto on_path = [&](uint32_t i) { return model.OnPath(picture.lines()[i].from, picture.lines()[i].to); };
  std::vector<uint32_t> shown = picture.LinesIn(window);
  Thin(shown, most, on_path);
  json.Name("lines");
  json.StartArray();
  for (const uint32_t i : shown) {
    const GraphPicture::Line& line = picture.lines()[i];
    json.StartArray();
    json.Int(line.from);
    json.Int(line.to);
    json.Bool(line.data);
    json.Bool(on_path(i));
    WritePlace(json, {line.begin.x, line.begin.y});
    for (const LayeredLayout::Point& bend : picture.BendsOf(line)) WritePlace(json, {bend.x, bend.y});
    WritePlace(json, {line.end.x, line.end.y});
    json.EndArray();
  }
  json.EndArray();
}

void WriteHead(JsonWriter& json, const StepGraphs& graphs, const StepsAround& around, bool golden_side,
               const ModelGraph& model, Statistic statistic) {
  const StepTables::Place& place = golden_side ? graphs.golden_place : graphs.place;
  json.Name("place");
  json.StartArray();
  json.Uint(place.first);
  json.Text(RankName(RankOfPlace(place)));
  json.EndArray();
  for (const auto& [name, value] : {std::pair<const char*, uint32_t>{"step", graphs.step},
                                    {"steps", around.steps},
                                    {"first_step", around.first},
                                    {"last_step", around.last},
                                    {"micro_steps", model.graph().micro_steps()}}) {
    json.Name(name);
    json.Uint(value);
  }
  for (const auto& [name, value] : {std::pair("step_before", around.before), std::pair("step_after", around.after)}) {
    json.Name(name);
    value ? json.Uint(*value) : json.Null();
  }
  json.Name("nodes");
  json.Uint64(model.graph().nodes().size() - 1);
  json.Name("compared");
  json.Bool(model.compared());
  json.Name("data_edges");
  json.Bool(model.edges().has_data());
  json.Name("first");
  json.Int(model.first());
  json.Name("first_name");
  json.Text(model.first() < 0 ? std::string_view() : model.graph().node(model.first()).name);
  json.Name("blame");
  json.Text(graphs.blame);
  json.Name("culprit");
  json.Text(graphs.culprit);
  json.Name("verdicts");
  json.StartArray();
  for (size_t i = 0; i < kVerdicts; ++i) json.Text(VerdictName(static_cast<Verdict>(i)));
  json.EndArray();
  json.Name("range");
  if (const auto range = model.RangeOf(statistic)) {
    json.StartArray();
    json.Double(range->first);
    json.Double(range->second);
    json.EndArray();
  } else {
    json.Null();
  }
}

absl::StatusOr<GraphPicture::Window> WindowOf(const WebQuery& query) {
  GraphPicture::Window window;
  for (const auto& [name, length, absent] : {std::tuple("x", &window.x, 0U),
                                             {"y", &window.y, 0U},
                                             {"wide", &window.wide, 2000U},
                                             {"high", &window.high, 2000U}}) {
    auto number = query.Number(name, absent);
    if (!number.ok()) return number.status();
    *length = static_cast<float>(*number);
  }
  window.wide = std::max(window.wide, kLeastWindow);
  window.high = std::max(window.high, kLeastWindow);
  return window;
}

}  // namespace

// The graph of one step of one rank, of `side` (target or golden) where `golden` names a run to compare with: those of
// its boxes and lines that a window (x, y, wide, high) shows, with the modules `open` (keys, joined by dots; 0: none)
// open.
//   - Without `open` and `show`, the graph begins with the way to where the trouble began.
//   - `show`, the name of a call: the modules around it are open, too, and the window lies around it.
//   - `anew`, anything: it is as the store has it now; else it may be a few seconds old.
//   - `fill`, a number of boxes, of which kMaxBoxes count: more modules are laid open, as long as no more boxes are
//   shown. "open" leaves these out.
// {"place": [step, rank] of the side, "step", "steps", "first_step", "last_step", "micro_steps", "step_before",
// "step_after", "nodes", "compared", "data_edges", "first": node or -1, "first_name", "blame", "culprit", "verdicts":
// names, "range": [1st, 99th percentile of the statistic's magnitudes] or null, "open": [keys], "size": [wide, high],
// "window": [x, y, wide, high], "shown": node or -1,
//  "boxes": [[node, x, y, wide, high, open, name, tensor, has a record, kind, parent, calls inside, level, worst level
//  inside, verdict, worst verdict inside, partner, value, mark as in AnswerGraphSearch, key], ...], "left_out": boxes,
//  "lines": [[from, to, by data, on the path of the trouble, x, y, x, y, ...], ...],
//  "overview": {"cell": its size, "wide": cells, "cells": base64}}. Verdicts are indexes into "verdicts", -1: none.
absl::Status AnswerGraph(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto question = QuestionOf(query);
  auto golden_side = IsGoldenSide(query);
  auto statistic = query.Statistic();
  auto window = WindowOf(query);
  auto fill = query.Number("fill", 0);
  for (const absl::Status& status :
       {question.status(), golden_side.status(), statistic.status(), window.status(), fill.status()}) {
    if (!status.ok()) return status;
  }
  auto found = context.graphs->Find(context.analysis, *question, context.cancelled, !query.Text("anew").empty());
  if (!found.ok()) return found.status();
  const StepGraphs& graphs = *found->graphs;
  const ModelGraph& model = graphs.side(*golden_side);
  auto open = OpenOf(query, model);
  if (!open.ok()) return open.status();
  const std::string wanted = query.Text("show");
  int32_t shown = -1;
  if (!wanted.empty()) {
    shown = model.graph().Find(wanted);
    if (shown <= 0) {
      return absl::NotFoundError(Cat("the graph of step ", graphs.step, " has no call \"", wanted, "\""));
    }
    if (open->empty()) *open = OpenAtFirst(model);
  } else if (query.Text("open").empty()) {
    *open = OpenAtFirst(model);
    shown = model.first();
  }
  if (shown > 0) OpenAround(model.graph(), shown, *open);
  std::set<int32_t> laid = *open;
  const size_t most = *fill > 0 ? std::min(*fill, kMaxBoxes) : kMaxBoxes;
  if (*fill > 0) OpenMore(model, most, laid);
  const std::shared_ptr<const GraphPicture> picture = model.PictureOf(laid);
  if (const GraphPicture::Box* const box = shown > 0 ? picture->Find(shown) : nullptr) {
    window->x = std::max(0.0F, box->x + box->wide / 2 - window->wide / 2);
    window->y = std::max(0.0F, box->y + std::min(box->high, GraphPicture::kBoxHigh) / 2 - window->high / 2);
  }
  const auto s = static_cast<Statistic>(*statistic);
  json.StartObject();
  WriteHead(json, graphs, found->around, *golden_side, model, s);
  json.Name("open");
  json.StartArray();
  for (const int32_t node : *open) {
    if (const std::string key = KeyText(model, node); !key.empty()) json.Text(key);
  }
  json.EndArray();
  json.Name("size");
  json.StartArray();
  WritePlace(json, {picture->size().wide, picture->size().high});
  json.EndArray();
  json.Name("window");
  json.StartArray();
  WritePlace(json, {window->x, window->y, window->wide, window->high});
  json.EndArray();
  json.Name("shown");
  json.Int(shown);
  WriteBoxes(json, model, *picture, *window, s, most);
  WriteLines(json, model, *picture, *window, kLinesOfABox * most);
  WriteOverview(json, model, *picture);
  json.EndObject();
  return absl::OkStatus();
}

// Calls whose names hold `text`, whatever the case, in order of execution; those where something is wrong come first.
// {"found": how many, "nodes": [[node, name, mark: 0 fine to 3 where it began], ...], at most `limit`}.
absl::Status AnswerGraphSearch(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto question = QuestionOf(query);
  auto golden_side = IsGoldenSide(query);
  auto text = query.Required("text");
  auto limit = query.Number("limit", 50);
  for (const absl::Status& status : {question.status(), golden_side.status(), text.status(), limit.status()}) {
    if (!status.ok()) return status;
  }
  auto graphs = context.graphs->Find(context.analysis, *question, context.cancelled);
  if (!graphs.ok()) return graphs.status();
  const ModelGraph& model = graphs->graphs->side(*golden_side);
  const uint32_t most = std::clamp(*limit, 1u, kMaxFound);
  constexpr int kMarks = 4;
  std::array<std::vector<int32_t>, kMarks> found;  // by mark
  uint64_t all = 0;
  const auto same = [](char a, char b) {
    return absl::ascii_tolower(static_cast<unsigned char>(a)) == absl::ascii_tolower(static_cast<unsigned char>(b));
  };
  const size_t nodes = model.graph().nodes().size();
  for (size_t i = 1; i < nodes; ++i) {
    const std::string_view name = model.graph().nodes()[i].name;
    if (std::search(name.begin(), name.end(), text->begin(), text->end(), same) == name.end()) continue;
    ++all;
    std::vector<int32_t>& of = found[static_cast<size_t>(model.MarkOf(static_cast<int32_t>(i)))];
    if (of.size() < most) of.push_back(static_cast<int32_t>(i));
  }
  json.StartObject();
  json.Name("found");
  json.Uint64(all);
  json.Name("nodes");
  json.StartArray();
  uint32_t shown = 0;
  for (int mark = kMarks - 1; mark >= 0; --mark) {
    for (const int32_t node : found[static_cast<size_t>(mark)]) {
      if (shown++ == most) break;
      json.StartArray();
      json.Int(node);
      json.Text(model.graph().node(node).name);
      json.Int(mark);
      json.EndArray();
    }
  }
  json.EndArray();
  json.EndObject();
  return absl::OkStatus();
}

}  // namespace msprobe::server
