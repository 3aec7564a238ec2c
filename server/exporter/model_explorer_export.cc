#include "server/exporter/model_explorer_export.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "server/analysis/compat/mindstudio_nodes.h"
#include "server/format/cat.h"
#include "server/format/json/json_writer.h"

namespace msprobe::server {
namespace {

constexpr size_t kStackLines = 3;  // of a node; the innermost
constexpr const char* kStatisticNames[] = {"max", "min", "mean", "norm"};
constexpr const char* kDifferenceNames[] = {"max_diff", "min_diff", "mean_diff", "norm_diff"};
constexpr const char* kRelative[] = {"max_relative_percent", "min_relative_percent", "mean_relative_percent",
                                     "norm_relative_percent"};
constexpr const char* kFigureNames[] = {"cosine",
                                        "euclidean_distance",
                                        "max_absolute_error",
                                        "max_relative_error",
                                        "share_below_one_thousandth",
                                        "share_below_five_thousandths"};
// Of these the lowest is the worst.
bool IsAgreement(size_t figure) { return figure == 0 || figure >= 4; }

constexpr std::string_view kUnmatched = "#C7C7C7";
// As graph databases colour verdicts.
std::string_view ColourOf(double precision) {
  return precision == 0 ? "#FFFCF3" : precision == 1 ? "#FF704D" : "#FFDC7F";
}
std::string_view ColourOf(OverflowLevel level) {
  return level == OverflowLevel::kCritical ? "#FF704D" : level == OverflowLevel::kHigh ? "#FFDC7F" : "#FFF3C4";
}

std::string TextOf(const Cell& cell) {
  switch (cell.kind) {
    case Cell::Kind::kNone:
      return "null";
    case Cell::Kind::kReal:
      return JsonNumber(cell.real);
    case Cell::Kind::kInteger:
      return Cat(cell.integer);
    case Cell::Kind::kUnsigned:
      return Cat(cell.unsigned_integer);
    case Cell::Kind::kBoolean:
      return cell.integer != 0 ? "true" : "false";
    case Cell::Kind::kText:
      return std::string(cell.view());
  }
  return {};
}

// Values of nodes of one graph under one name.
class NodeData {
 public:
  NodeData() : json_(true) { json_.StartObject(); }

  void Add(std::string_view node, double value, std::string_view colour = {}) {
    if (!std::isfinite(value)) return;
    Begin(node);
    json_.Double(value);
    End(colour);
  }
  void Add(std::string_view node, std::string_view word, std::string_view colour) {
    Begin(node);
    json_.Text(word);
    End(colour);
  }
  std::string Take() {
    json_.EndObject();
    return json_.Take();
  }

 private:
  void Begin(std::string_view node) {
    json_.Name(node);
    json_.StartObject();
    json_.Name("value");
  }
  void End(std::string_view colour) {
    if (!colour.empty()) {
      json_.Name("bgColor");
      json_.Text(colour);
    }
    json_.EndObject();
  }

  JsonWriter json_;
};
using DataByName = std::map<std::string, NodeData>;

// The name of a call without the module around it: "mlp.MLP.forward.0" in "Module.layers.0.Block.forward.0".
std::string_view LabelOf(const StepGraph& graph, const GraphNode& node) {
  const auto module_of = [](std::string_view name) {
    const size_t end = name.find(".forward");
    return end == std::string_view::npos ? name.substr(0, name.find(".backward")) : name.substr(0, end);
  };
  std::string_view label = node.name;
  if (node.kind != GraphNode::Kind::kModule || node.parent < 0) return label;
  // Without the class, which is the last part.
  std::string_view around = module_of(graph.node(node.parent).name);
  around = around.substr(0, around.rfind('.') == std::string_view::npos ? 0 : around.rfind('.') + 1);
  if (!around.empty() && label.starts_with(around)) return label.substr(around.size());
  const size_t kind = label.find('.');
  return kind == std::string_view::npos ? label : label.substr(kind + 1);
}

// By node: the namespace of what is in it.
std::vector<std::string> LayersOf(const StepGraph& graph) {
  std::vector<std::string> layers(graph.nodes().size());
  for (size_t i = graph.order().size(); i-- > 0;) {  // parents first
    const auto at = static_cast<size_t>(graph.order()[i]);
    const GraphNode& node = graph.nodes()[at];
    if (node.parent < 0) continue;
    const std::string& around = layers[static_cast<size_t>(node.parent)];
    const std::string_view label = LabelOf(graph, node);
    layers[at] = node.children.empty() ? around : around.empty() ? std::string(label) : Cat(around, "/", label);
  }
  return layers;
}

class GraphWriter {
 public:
  // partners: of each node; null: there is no other side.
  GraphWriter(const StepTable& table, const StepGraph& graph, const std::vector<int32_t>* partners)
      : table_(table), graph_(graph), partners_(partners), json_(true), layers_(LayersOf(graph)) {}

  std::string Write(std::string_view id) {
    json_.StartObject();
    Member("id", id);
    json_.Name("nodes");
    json_.StartArray();
    std::vector<int32_t> waiting = {0};
    while (!waiting.empty()) {
      const int32_t number = waiting.back();
      waiting.pop_back();
      const GraphNode& node = graph_.node(number);
      if (number != 0) WriteNode(number, node);
      waiting.insert(waiting.end(), node.children.rbegin(), node.children.rend());
    }
    json_.EndArray();
    json_.EndObject();
    return json_.Take();
  }

 private:
  void Member(std::string_view name, std::string_view text) {
    json_.Name(name);
    json_.Text(text);
  }
  void Attribute(std::string_view key, std::string_view value) {
    json_.StartObject();
    Member("key", key);
    Member("value", value);
    json_.EndObject();
  }

  void WriteNode(int32_t number, const GraphNode& node) {
    const std::string_view label = LabelOf(graph_, node);
    const std::string& own = layers_[static_cast<size_t>(number)];
    json_.StartObject();
    Member("id", node.name);
    Member("label", label);
    Member("namespace", own);
    WriteEdges(number, node);
    WriteAttributes(node);
    if (node.entry >= 0) {
      WriteTensors("inputsMetadata", node, true);
      WriteTensors("outputsMetadata", node, false);
    }
    if (partners_ != nullptr && (*partners_)[static_cast<size_t>(number)] < 0) {
      json_.Name("style");
      json_.StartObject();
      Member("backgroundColor", kUnmatched);
      json_.EndObject();
    }
    json_.EndObject();
  }

  // From the neighbour before it, and from the last call inside of it.
  void WriteEdges(int32_t number, const GraphNode& node) {
    std::vector<int32_t> from;
    if (node.parent >= 0) {
      const size_t at = Place(number);
      if (at > 0) from.push_back(graph_.node(node.parent).children[at - 1]);
    }
    if (!node.children.empty()) from.push_back(node.children.back());
    json_.Name("incomingEdges");
    json_.StartArray();
    for (const int32_t source : from) {
      json_.StartObject();
      Member("sourceNodeId", graph_.node(source).name);
      json_.EndObject();
    }
    json_.EndArray();
  }

  // Of a node among its siblings.
  size_t Place(int32_t number) {
    if (place_of_.empty()) {
      place_of_.resize(graph_.nodes().size());
      for (const GraphNode& node : graph_.nodes()) {
        for (size_t i = 0; i < node.children.size(); ++i) place_of_[static_cast<size_t>(node.children[i])] = i;
      }
    }
    return place_of_[static_cast<size_t>(number)];
  }

  void WriteAttributes(const GraphNode& node) {
    json_.Name("attrs");
    json_.StartArray();
    Attribute("micro step", Cat(node.micro_step));
    if (node.stack >= 0) {
      const std::vector<std::string>& lines = table_.stacks[static_cast<size_t>(node.stack)];
      for (size_t i = 0; i < std::min(lines.size(), kStackLines); ++i)
        Attribute(i == 0 ? "stack" : "called by", lines[i]);
    }
    json_.EndArray();
  }

  void WriteTensors(std::string_view name, const GraphNode& node, bool inputs) {
    const Entry& entry = table_.entries[static_cast<size_t>(node.entry)];
    json_.Name(name);
    json_.StartArray();
    uint32_t id = 0;
    for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
      const Row& row = table_.rows[i];
      if ((row.state == RowState::kInput || row.state == RowState::kParameters) != inputs || row.is_null) continue;
      json_.StartObject();
      Member("id", Cat(id++));
      json_.Name("attrs");
      json_.StartArray();
      const bool inside = row.name.size() > entry.name.size() && row.name.starts_with(entry.name);
      Attribute("__tensor_tag", inside ? row.name.substr(entry.name.size() + 1) : row.name);
      if (row.is_tensor) {
        Attribute("tensor", Cat(table_.text(row.dtype), " ", table_.text(row.shape)));
      } else {
        Attribute("type", row.type);
      }
      for (size_t s = 0; s < std::size(kStatisticNames); ++s) {
        if (row.statistics[s].kind != Cell::Kind::kNone) Attribute(kStatisticNames[s], TextOf(row.statistics[s]));
        if (!row.is_tensor) break;
      }
      json_.EndArray();
      json_.EndObject();
    }
    json_.EndArray();
  }

  const StepTable& table_;
  const StepGraph& graph_;
  const std::vector<int32_t>* const partners_;
  JsonWriter json_;
  const std::vector<std::string> layers_;  // by node
  std::vector<size_t> place_of_;
};

// Statistics of a node's results; of one without results, of what went in.
void AddStatistics(const StepTable& table, const GraphNode& node, DataByName& data) {
  const Entry& entry = table.entries[static_cast<size_t>(node.entry)];
  const auto rows = [&](auto wanted, auto visit) {
    bool any = false;
    for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
      const Row& row = table.rows[i];
      if (!row.is_tensor || !wanted(row.state)) continue;
      any = true;
      visit(row);
    }
    return any;
  };
  std::optional<double> found[4];
  double non_finite = 0;
  bool counted = false;
  const auto add = [&](const Row& row) {
    for (size_t s = 0; s < 4; ++s) {
      if (!row.statistics[s].is_number()) continue;
      const double value = row.statistics[s].number();
      if (!found[s]) found[s] = value;
      if (s == 1) found[s] = std::min(*found[s], value);
      if (s == 2) found[s] = std::abs(value) > std::abs(*found[s]) ? value : *found[s];
      if (s == 0 || s == 3) found[s] = std::max(*found[s], value);
    }
    if (row.extended < 0) return;
    const ExtendedStatistics& more = table.extended[static_cast<size_t>(row.extended)];
    if (!more.has_counts) return;
    counted = true;
    non_finite += static_cast<double>(more.nan_count + more.positive_inf_count + more.negative_inf_count);
  };
  const auto is_result = [](RowState state) {
    return state == RowState::kOutput || state == RowState::kParametersGrad;
  };
  if (!rows(is_result, add)) rows([](RowState state) { return state == RowState::kInput; }, add);
  for (size_t s = 0; s < 4; ++s) {
    if (found[s]) data[kStatisticNames[s]].Add(node.name, *found[s]);
  }
  if (counted) data["non_finite"].Add(node.name, non_finite);
}

// The worst of its rows.
void AddMetrics(std::string_view node, StepTable::Mode mode, const std::vector<TableRow>& rows, DataByName& data) {
  const auto worst = [&](auto value_of, bool lowest) {
    std::optional<double> found;
    for (const TableRow& row : rows) {
      const std::optional<double> value = value_of(row);
      if (!value || !std::isfinite(*value)) continue;
      const bool worse = !found || (lowest ? *value < *found : std::abs(*value) > std::abs(*found));
      if (worse) found = value;
    }
    return found;
  };
  for (size_t i = 0; mode == StepTable::Mode::kStatistics && i < std::size(kDifferenceNames); ++i) {
    const auto number = [i](bool relative) {
      return [i, relative](const TableRow& row) -> std::optional<double> {
        const Difference& difference = row.differences[i];
        if (difference.spelling == Difference::Spelling::kWord) return std::nullopt;
        if (difference.spelling == Difference::Spelling::kZero) return 0;
        if (relative && difference.by_zero) return std::nullopt;
        return relative ? difference.percent : difference.difference;
      };
    };
    if (const auto value = worst(number(false), false)) data[kDifferenceNames[i]].Add(node, *value);
    if (const auto value = worst(number(true), false)) data[kRelative[i]].Add(node, *value);
  }
  for (size_t i = 0; mode == StepTable::Mode::kTensor && i < std::size(kFigureNames); ++i) {
    const auto value = worst(
        [i](const TableRow& row) {
          return row.figures[i].is_number ? std::optional(row.figures[i].number) : std::nullopt;
        },
        IsAgreement(i));
    if (value) data[kFigureNames[i]].Add(node, *value);
  }
}

// Nodes that belong together: those that are connected by partners of either side.
// Layers have numbers of their own in Model Explorer, so each goes with that of the same call on the other side.
std::string MappingOf(const StepGraph& target, const StepGraph& golden, const GraphMatch& match) {
  const size_t ours = target.nodes().size();
  std::vector<size_t> root(ours + golden.nodes().size());
  for (size_t i = 0; i < root.size(); ++i) root[i] = i;
  const auto find = [&](size_t at) {
    while (root[at] != at) at = root[at] = root[root[at]];
    return at;
  };
  for (size_t i = 0; i < ours; ++i) {
    if (match.golden_of[i] >= 0) root[find(ours + static_cast<size_t>(match.golden_of[i]))] = find(i);
  }
  for (size_t i = 0; i < golden.nodes().size(); ++i) {
    if (match.target_of[i] >= 0) root[find(ours + i)] = find(static_cast<size_t>(match.target_of[i]));
  }
  struct Side {
    std::vector<std::string> calls, layers;
  };
  std::map<size_t, std::array<Side, 2>> together;
  const auto add = [&](const StepGraph& graph, size_t first, size_t side) {
    const std::vector<std::string> layers = LayersOf(graph);
    for (size_t i = 1; i < graph.nodes().size(); ++i) {
      Side& of = together[find(first + i)][side];
      of.calls.emplace_back(graph.nodes()[i].name);
      if (!graph.nodes()[i].children.empty()) of.layers.push_back(Cat(layers[i], "___group___"));
    }
  };
  add(target, 0, 0);
  add(golden, ours, 1);
  JsonWriter json(true);
  json.StartObject();
  json.Name("mappingEntries");
  json.StartArray();
  for (const auto& [first, sides] : together) {
    for (const auto nodes : {&Side::calls, &Side::layers}) {
      if ((sides[0].*nodes).empty() || (sides[1].*nodes).empty()) continue;
      json.StartObject();
      for (size_t side : {0, 1}) {
        json.Name(side == 0 ? "leftNodeIds" : "rightNodeIds");
        json.StartArray();
        for (const std::string& node : sides[side].*nodes) json.Text(node);
        json.EndArray();
      }
      json.EndObject();
    }
  }
  json.EndArray();
  for (const char* name : {"disableMappingFallback", "showDiffHighlights"}) {
    json.Name(name);
    json.Bool(true);
  }
  json.EndObject();
  return json.Take();
}

void AddData(const StepTable& table, const StepGraph& graph, bool overflow, DataByName& data) {
  const std::vector<OverflowLevel> levels = overflow ? OverflowLevels(table) : std::vector<OverflowLevel>();
  for (const GraphNode& node : graph.nodes()) {
    if (node.entry < 0) continue;
    AddStatistics(table, node, data);
    if (!overflow) continue;
    NodeData& marked = data["overflow"];
    const OverflowLevel level = levels[static_cast<size_t>(node.entry)];
    if (level != OverflowLevel::kNone) marked.Add(node.name, OverflowLevelName(level), ColourOf(level));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelExplorerExport>> ModelExplorerExport::Begin(std::string directory,
                                                                                VisOptions options) {
  return std::unique_ptr<ModelExplorerExport>(new ModelExplorerExport(std::move(directory), std::move(options)));
}

absl::Status ModelExplorerExport::Append(const std::string& name, std::string_view head, std::string_view tail,
                                         std::string_view item) {
  const auto [known, added] = files_.try_emplace(name);
  File& file = known->second;
  if (added) {
    file.stream.open(Cat(directory_, "/", name), std::ios::binary);
    file.stream << head;
    file.tail = tail;
  } else {
    file.stream << ',';
  }
  file.stream << item;
  return file.stream ? absl::OkStatus() : absl::ResourceExhaustedError(Cat("cannot write ", directory_, "/", name));
}

absl::Status ModelExplorerExport::Add(const ExportedStep& target, const ExportedStep& golden) {
  const std::string place = Cat("step", target.step, " rank", target.rank);
  const auto graph_of = [](const ExportedStep& side, std::string_view which) -> absl::StatusOr<StepGraph> {
    auto graph = StepGraph::Make(side.table->table());
    if (graph.ok()) {
      if (absl::Status status = CheckDepth(*graph, which); !status.ok()) return status;
      return graph;
    }
    return absl::Status(graph.status().code(), Cat(which, ": ", StdView(graph.status().message())));
  };
  const auto write = [&](std::string_view side, const ExportedStep& given, const StepGraph& graph,
                         const std::vector<int32_t>* partners, DataByName& data) {
    const std::string id = Cat(side, " ", place);
    GraphWriter writer(given.table->table(), graph, partners);
    absl::Status status =
        Append(Cat(side, ".json"), Cat("{\"label\":\"", side, "\",\"graphs\":["), "]}", writer.Write(id));
    AddData(given.table->table(), graph, options_.overflow, data);
    for (auto& [name, values] : data) {
      if (!status.ok()) break;
      status = Append(Cat("node_data_", name, ".json"), "{", "}",
                      Cat("\"", id, "\":{\"name\":\"", name, "\",\"results\":", values.Take(), "}"));
    }
    return status;
  };
  auto ours = graph_of(target, "the target");
  if (!ours.ok()) return ours.status();
  DataByName data;
  if (golden.empty()) return write("target", target, *ours, nullptr, data);
  auto theirs = graph_of(golden, "the golden side");
  if (!theirs.ok()) return theirs.status();
  const GraphMatch match =
      MatchGraphs(options_, *ours, target.table->table(), *theirs, golden.table->table(), renamed_);
  MindstudioNodes::Entries entries;
  for (size_t i = 0; i < ours->nodes().size(); ++i) {
    const int32_t partner = match.golden_of[i];
    entries.emplace_back(ours->nodes()[i].entry, partner < 0 ? -1 : theirs->node(partner).entry);
  }
  auto compared = MindstudioNodes::Make(*target.table, *golden.table, entries, options_.content);
  if (!compared.ok()) return compared.status();
  std::vector<TableRow> rows;
  for (size_t i = 0; i < ours->nodes().size(); ++i) {
    rows.clear();
    const auto precision = PrecisionOfNode(*ours, static_cast<int32_t>(i), *compared, rows);
    if (!precision) continue;
    const std::string_view name = ours->nodes()[i].name;
    data["verdict"].Add(name, *precision == 0 ? "pass" : *precision == 1 ? "error" : "warning", ColourOf(*precision));
    AddMetrics(name, compared->mode(), rows, data);
  }
  absl::Status status = write("target", target, *ours, &match.golden_of, data);
  DataByName other;
  if (status.ok()) status = write("golden", golden, *theirs, &match.target_of, other);
  if (!status.ok()) return status;
  return Append(Cat("mapping_step", target.step, "_rank", target.rank, ".json"), "", "",
                MappingOf(*ours, *theirs, match));
}

absl::Status ModelExplorerExport::Finish() {
  if (absl::Status status = CheckRenamed(options_, renamed_); !status.ok()) return status;
  for (auto& [name, file] : files_) {
    file.stream << file.tail;
    file.stream.close();
    if (!file.stream) return absl::ResourceExhaustedError(Cat("cannot write ", directory_, "/", name));
  }
  return absl::OkStatus();
}

std::vector<std::string> ModelExplorerExport::files() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : files_) names.push_back(name);
  return names;
}

}  // namespace msprobe::server
