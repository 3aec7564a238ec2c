#include "server/exporter/merged_dump.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"
#include "server/format/json/json_writer.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kStatisticKeys[] = {"Max", "Min", "Mean", "Norm"};

// A value, and where it is in its record: {"input", "0", "1"} is the second of the list that is the first argument.
struct Place {
  std::vector<std::string_view> parts;
  const Row* row = nullptr;
};
using Places = std::span<const Place>;

class RecordWriter {
 public:
  RecordWriter(const StepTable& table, JsonWriter& json) : table_(table), json_(json) {}

  void Write(std::string_view name, const Entry& entry, const std::vector<std::string>& notes) {
    std::vector<Place> places;
    for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
      const Row& row = table_.rows[i];
      places.push_back({PartsOfName(row.name.substr(std::min(row.name.size(), name.size() + 1))), &row});
    }
    json_.StartObject();
    const bool backward = name.find(".backward") != std::string_view::npos;
    for (Places section : Grouped(places, 0)) {
      const std::string_view what = section[0].parts.empty() ? std::string_view() : section[0].parts[0];
      if (what != "input") {  // parameters, output; of gradients of parameters their names
        json_.Name(what);
        Value(section, 1, /*in_list=*/section[0].row->state == RowState::kParametersGrad);
        continue;
      }
      const auto split = std::find_if(section.begin(), section.end(), [](const Place& place) {
        return place.parts.size() < 2 || !IsNumberPart(place.parts[1]);
      });
      const auto positional = static_cast<size_t>(split - section.begin());
      if (positional > 0) {
        json_.Name(backward ? "input" : "input_args");
        Value(section.first(positional), 1, false);
      }
      if (positional < section.size()) {
        json_.Name("input_kwargs");
        Value(section.subspan(positional), 1, false);
      }
    }
    if (!notes.empty()) {
      json_.Name("parallel_merge_info");
      json_.StartArray();
      for (const std::string& note : notes) json_.Text(note);
      json_.EndArray();
    }
    json_.EndObject();
  }

 private:
  static std::string_view PartOf(const Place& place, size_t depth) {
    return depth < place.parts.size() ? place.parts[depth] : std::string_view();
  }

  // Those next to each other whose part at this depth is the same.
  static std::vector<Places> Grouped(Places places, size_t depth) {
    std::vector<Places> groups;
    for (size_t begin = 0; begin < places.size();) {
      size_t end = begin + 1;
      while (end < places.size() && PartOf(places[end], depth) == PartOf(places[begin], depth)) ++end;
      groups.push_back(places.subspan(begin, end - begin));
      begin = end;
    }
    return groups;
  }

  void Value(Places places, size_t depth, bool in_list) {
    if (places.size() == 1 && places[0].parts.size() <= depth) {
      if (in_list) json_.StartArray();
      Leaf(*places[0].row);
      if (in_list) json_.EndArray();
      return;
    }
    const bool is_list = std::all_of(places.begin(), places.end(),
                                     [&](const Place& place) { return IsNumberPart(PartOf(place, depth)); });
    is_list ? json_.StartArray() : json_.StartObject();
    for (Places group : Grouped(places, depth)) {
      if (!is_list) json_.Name(PartOf(group[0], depth));
      Value(group, depth + 1, false);
    }
    is_list ? json_.EndArray() : json_.EndObject();
  }

  void Leaf(const Row& row) {
    if (row.is_null) {
      json_.Null();
      return;
    }
    json_.StartObject();
    json_.Name("type");
    json_.Text(row.type);
    if (row.is_tensor) {
      json_.Name("dtype");
      json_.Text(table_.text(row.dtype));
      json_.Name("shape");
      json_.Json(table_.text(row.shape));
      for (size_t i = 0; i < std::size(kStatisticKeys); ++i) {
        json_.Name(kStatisticKeys[i]);
        Put(row.statistics[i]);
      }
      if (row.requires_grad != Row::Grad::kAbsent) {
        json_.Name("requires_grad");
        json_.Bool(row.requires_grad == Row::Grad::kTrue);
      }
      if (table_.mode == StepTable::Mode::kChecksum && !row.checksum.empty()) {
        json_.Name("md5");
        json_.Text(row.checksum);
      }
    } else if (row.type == "torch.ProcessGroup") {
      json_.Name("group_ranks");
      json_.Json(row.statistics[0].kind == Cell::Kind::kText ? row.statistics[0].view() : "null");
    } else {
      json_.Name("value");
      row.said.empty() ? Put(row.statistics[0]) : json_.Json(row.said);
    }
    json_.EndObject();
  }

  void Put(const Cell& cell) {
    switch (cell.kind) {
      case Cell::Kind::kNone:
        json_.Null();
        break;
      case Cell::Kind::kReal:
        json_.Double(cell.real);
        break;
      case Cell::Kind::kInteger:
        json_.Int64(cell.integer);
        break;
      case Cell::Kind::kUnsigned:
        json_.Uint64(cell.unsigned_integer);
        break;
      case Cell::Kind::kBoolean:
        json_.Bool(cell.integer != 0);
        break;
      case Cell::Kind::kText:
        json_.Text(cell.view());
        break;
    }
  }

  const StepTable& table_;
  JsonWriter& json_;
};

class MergedDump {
 public:
  MergedDump(MergedStep& step, FileSink& sink) : step_(step), table_(step.table()), graph_(step.graph()), sink_(sink) {}

  absl::Status WriteRecords() {
    absl::Status status = sink_.Write(Cat("{\n\"task\": ", Quoted(table_.task), ",\n\"level\": ", Quoted(table_.level),
                                          ",\n\"framework\": ", Quoted(table_.framework),
                                          ",\n\"dump_data_dir\": null,\n\"is_merged\": true,\n\"data\": "));
    RecordWriter records(table_, json_);
    for (const int32_t number : graph_.order()) {
      const GraphNode& node = graph_.node(number);
      if (!status.ok()) return status;
      if (node.entry < 0) continue;
      records.Write(node.name, table_.entries[static_cast<size_t>(node.entry)],
                    step_.notes()[static_cast<size_t>(number)]);
      status = Member(node.name, json_.Take());
    }
    if (status.ok()) status = End();
    return status.ok() ? sink_.Write("}\n") : status;
  }

  absl::Status WriteParents() {
    for (const int32_t number : graph_.order()) {
      const GraphNode& node = graph_.node(number);
      if (node.parent < 0) continue;
      absl::Status status = Member(node.name, Quoted(graph_.node(node.parent).name));
      if (!status.ok()) return status;
    }
    return End();
  }

  // Ranks have their own copies of a stack, which stands once here.
  absl::Status WriteStacks() {
    std::map<std::vector<std::string>, size_t> numbers;
    std::vector<std::pair<const std::vector<std::string>*, std::vector<std::string_view>>> stacks;
    for (const int32_t number : graph_.order()) {
      const GraphNode& node = graph_.node(number);
      if (node.stack < 0 || table_.stacks[static_cast<size_t>(node.stack)].empty()) continue;
      const auto [known, is_new] = numbers.try_emplace(table_.stacks[static_cast<size_t>(node.stack)], stacks.size());
      if (is_new) stacks.emplace_back(&known->first, std::vector<std::string_view>());
      stacks[known->second].second.push_back(node.name);
    }
    for (size_t i = 0; i < stacks.size(); ++i) {
      json_.StartArray();
      Texts(stacks[i].second);
      Texts(*stacks[i].first);
      json_.EndArray();
      if (absl::Status status = Member(Cat(i), json_.Take()); !status.ok()) return status;
    }
    return End();
  }

 private:
  static std::string Quoted(std::string_view text) {
    JsonWriter json(/*strict=*/false);
    json.Text(text);
    return json.Take();
  }

  // A line of the object at hand.
  absl::Status Member(std::string_view name, const std::string& value) {
    const std::string_view before = is_first_ ? "{\n" : ",\n";
    is_first_ = false;
    return sink_.Write(Cat(before, Quoted(name), ": ", value));
  }
  absl::Status End() { return sink_.Write(is_first_ ? "{}\n" : "\n}\n"); }

  template <typename Lines>
  void Texts(const Lines& lines) {
    json_.StartArray();
    for (const auto& line : lines) json_.Text(line);
    json_.EndArray();
  }

  MergedStep& step_;
  const StepTable& table_;
  const StepGraph& graph_;
  FileSink& sink_;
  JsonWriter json_{/*strict=*/false};
  bool is_first_ = true;
};

}  // namespace

absl::Status WriteMergedDump(MergedStep& step, const std::string& directory, FileSink& sink) {
  using Part = absl::Status (MergedDump::*)();
  for (const auto& [name, part] : {std::pair<std::string_view, Part>{"dump.json", &MergedDump::WriteRecords},
                                   {"construct.json", &MergedDump::WriteParents},
                                   {"stack.json", &MergedDump::WriteStacks}}) {
    absl::Status status = sink.Begin(Cat(directory, "/", name));
    if (status.ok()) status = (MergedDump(step, sink).*part)();
    if (status.ok()) status = sink.End();
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
