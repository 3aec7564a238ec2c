#include "server/exporter/vis_export.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "server/analysis/compat/mindstudio_nodes.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/exporter/node_rows.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kTarget = "NPU";
constexpr std::string_view kGolden = "Bench";

// What one side of a step is, once its calls are a graph.
struct Side {
  const StepTable& table;
  std::unique_ptr<StepGraph> made;  // null: it was merged
  StepGraph& graph;
  const std::vector<std::vector<std::string>>* notes;  // null: it was not
  std::vector<OverflowLevel> levels;                   // by entry; empty: not asked for
  std::vector<int32_t> stack_of;                       // by stack of the table: index into stacks, -1: not written yet
  std::vector<std::string> stacks;                     // VisNode.stack
};

absl::StatusOr<Side> MakeSide(const ExportedStep& given, bool overflow, std::string_view which) {
  const StepTable& table = given.table->table();
  std::unique_ptr<StepGraph> made;
  if (given.merged == nullptr) {
    auto graph = StepGraph::Make(table);
    if (!graph.ok()) return absl::Status(graph.status().code(), Cat(which, ": ", StdView(graph.status().message())));
    made = std::make_unique<StepGraph>(*std::move(graph));
  }
  StepGraph& graph = made == nullptr ? given.merged->graph() : *made;
  return Side{table,
              std::move(made),
              graph,
              given.merged == nullptr ? nullptr : &given.merged->notes(),
              overflow ? OverflowLevels(table) : std::vector<OverflowLevel>(),
              std::vector<int32_t>(table.stacks.size() + 1, -1),
              {}};
}

// The names from the root to a node; of -1, the root's parent, none.
std::vector<std::string_view> PathTo(const StepGraph& graph, int32_t node) {
  std::vector<std::string_view> names;
  for (; node >= 0; node = graph.node(node).parent) names.push_back(graph.node(node).name);
  std::reverse(names.begin(), names.end());
  return names;
}

// Calls that give memory without writing to it say nothing, whatever comparing says: pass, and in mode checksum error.
bool IsIgnored(std::string_view name) {
  const std::string_view operation = OperationOf(name);
  for (std::string_view ignored :
       {"empty", "empty_like", "empty_with_format", "new_empty_strided", "new_empty", "empty_strided"}) {
    if (operation == ignored) return true;
  }
  return false;
}

double PrecisionOf(Severity severity) {
  return severity == Severity::kPass ? 0 : severity == Severity::kWarning ? 0.5 : 1;
}

std::string ToolTip(const MindstudioNodes& nodes) {
  if (nodes.structure() || nodes.mode() == StepTable::Mode::kTensor) {
    return R"({"Cosine": "", "EucDist": "", "MaxAbsErr": "", "MaxRelativeErr": "", "One Thousandth Err Ratio": "", )"
           R"("Five Thousandths Err Ratio": ""})";
  }
  if (nodes.mode() == StepTable::Mode::kChecksum) return R"({"md5": "the checksum of the tensor's bytes"})";
  return R"({"Max diff": "the target's maximum less the golden side's", "Min diff": "the same of the minimum", )"
         R"("Mean diff": "the same of the mean", "L2norm diff": "the same of the norm"})";
}

// Colour, from and to which precision, what it means. Pages know the colours by these words.
std::string NodeColours(const MindstudioNodes& nodes) {
  const std::string_view what = nodes.structure()                            ? ""
                                : nodes.mode() == StepTable::Mode::kTensor   ? "elements"
                                : nodes.mode() == StepTable::Mode::kChecksum ? "checksums"
                                                                             : "statistics";
  std::string colours = "{";
  if (!what.empty()) {
    const auto add = [&](std::string_view colour, std::string_view range, std::string_view says,
                         std::string_view level) {
      colours += Cat("\"", colour, "\": {\"value\": ", range, ", \"description\": \"", says, what,
                     " of its inputs and outputs\", \"accuracy_level\": \"", level, "\"}, ");
    };
    add("#FFFCF3", "[0, 0.3]", "no remarkable difference in the ", "pass");
    add("#FFDC7F", "[0.3, 0.6]", "a remarkable difference in the ", "warning");
    add("#FF704D", "[0.6, 1]", "a grave difference in the ", "error");
  }
  colours +=
      "\"#C7C7C7\": {\"value\": [], \"description\": \"the other side has no such node\", \"accuracy_level\": "
      "\"unmatched node\"}}";
  return colours;
}

std::string_view TaskName(const MindstudioNodes& nodes) {
  if (nodes.structure()) return "structure";
  switch (nodes.mode()) {
    case StepTable::Mode::kStatistics:
      return "summary";
    case StepTable::Mode::kChecksum:
      return "md5";
    case StepTable::Mode::kTensor:
      return "all";
  }
  return "";
}

// Writes the nodes of one side of a step.
class SideWriter {
 public:
  // partners: the other side, and this side's nodes' partners there. Null: there is no other side.
  SideWriter(VisDatabase& database, Side& side, const Side* other, const std::vector<int32_t>* partners,
             const MindstudioNodes* compared, bool checksums, CommunicationPartners& communications)
      : database_(database),
        side_(side),
        other_(other),
        partners_(partners),
        compared_(compared),
        checksums_(checksums),
        communications_(communications),
        paths_(other == nullptr ? 0 : other->graph.nodes().size() + 1) {}

  absl::Status Write(VisNode head) {
    const StepGraph& graph = side_.graph;
    const Entry nothing;
    std::vector<std::optional<double>> precisions(compared_ == nullptr ? 0 : graph.nodes().size());
    for (size_t i = 0; i < graph.order().size(); ++i) {
      const int32_t number = graph.order()[i];
      const GraphNode& node = graph.node(number);
      head.order = static_cast<uint32_t>(i);
      head.name = node.name;
      head.kind = static_cast<int>(node.kind);
      head.parent = node.parent < 0 ? std::string_view() : graph.node(node.parent).name;
      head.children_json = Children(node);
      head.micro_step = node.micro_step;
      if (absl::Status status = Match(number, head); !status.ok()) return status;
      head.merge_json = Notes(number);
      auto stack = Stack(node.stack);
      if (!stack.ok()) return stack.status();
      head.stack = *stack;
      const bool has_entry = node.entry >= 0;
      head.overflow = has_entry && !side_.levels.empty()
                          ? OverflowLevelName(side_.levels[static_cast<size_t>(node.entry)])
                          : std::string_view();
      rows_.clear();
      if (compared_ != nullptr) {
        head.precision = precisions[static_cast<size_t>(number)] = Precision(number, precisions);
      }
      WriteNodeRows(side_.table, node.name, has_entry ? side_.table.entries[static_cast<size_t>(node.entry)] : nothing,
                    checksums_, rows_, compared_ == nullptr ? StepTable::Mode::kStatistics : compared_->mode(),
                    other_ == nullptr ? nullptr : &other_->table, texts_);
      head.inputs = texts_.inputs;
      head.outputs = texts_.outputs;
      auto added = database_.AddNode(head);
      if (!added.ok()) return added.status();
      if (has_entry && side_.notes == nullptr && head.name.starts_with("Distributed.")) {
        AddCommunication(head, node, *added);
      }
    }
    return absl::OkStatus();
  }

 private:
  // Nodes are told in the order in which the calls ended, which is that of communications.
  void AddCommunication(const VisNode& head, const GraphNode& node, int64_t number) {
    std::string mark = "Nan";
    if (!side_.levels.empty()) {
      if (!head.overflow.empty()) mark = head.overflow;
    } else if (head.precision) {
      mark = *head.precision == 0.5 ? "0.5" : *head.precision == 0 ? "0" : "1";
    }
    communications_.Add(head.step, head.rank, side_.table, side_.table.entries[static_cast<size_t>(node.entry)], mark,
                        number);
  }

  std::string_view Children(const GraphNode& node) {
    children_.clear();
    if (node.children.empty()) return children_;
    for (const int32_t child : node.children) {
      children_ += children_.empty() ? '[' : ',';
      AppendJsonText(side_.graph.node(child).name, children_);
    }
    children_ += ']';
    return children_;
  }

  absl::Status Match(int32_t node, VisNode& head) {
    const int32_t partner = partners_ == nullptr ? -1 : (*partners_)[static_cast<size_t>(node)];
    head.match_path.reset();
    if (partner < 0) return absl::OkStatus();
    head.match = other_->graph.node(partner).name;
    const int32_t parent = other_->graph.node(partner).parent;
    std::optional<int64_t>& path = paths_[static_cast<size_t>(int64_t{parent} + 1)];
    if (!path) {
      auto added = database_.AddPath(PathTo(other_->graph, parent));
      if (!added.ok()) return added.status();
      path = *added;
    }
    head.match_path = path;
    return absl::OkStatus();
  }

  std::string_view Notes(int32_t node) {
    notes_.clear();
    if (side_.notes == nullptr) return notes_;
    for (const std::string& note : (*side_.notes)[static_cast<size_t>(node)]) {
      notes_ += notes_.empty() ? "[" : ", ";
      AppendJsonText(note, notes_);
    }
    if (!notes_.empty()) notes_ += ']';
    return notes_;
  }

  absl::StatusOr<std::string_view> Stack(int32_t stack) {
    int32_t& known = side_.stack_of[static_cast<size_t>(int64_t{stack} + 1)];
    if (known < 0) {
      auto id =
          database_.AddStack(stack < 0 ? std::vector<std::string>() : side_.table.stacks[static_cast<size_t>(stack)]);
      if (!id.ok()) return id.status();
      known = static_cast<int32_t>(side_.stacks.size());
      side_.stacks.push_back(*std::move(id));
    }
    return side_.stacks[static_cast<size_t>(known)];
  }

  // Also fills rows_. A collection has the worst of what is in it, which came before.
  std::optional<double> Precision(int32_t number, const std::vector<std::optional<double>>& precisions) {
    const GraphNode& node = side_.graph.node(number);
    if (node.kind == GraphNode::Kind::kCollection) {
      double worst = 0;
      for (const int32_t child : node.children) {
        worst = std::max(worst, precisions[static_cast<size_t>(child)].value_or(0));
      }
      return worst;
    }
    return PrecisionOfNode(side_.graph, number, *compared_, rows_);
  }

  VisDatabase& database_;
  Side& side_;
  const Side* const other_;
  const std::vector<int32_t>* const partners_;
  const MindstudioNodes* const compared_;
  const bool checksums_;
  CommunicationPartners& communications_;
  std::vector<std::optional<int64_t>> paths_;  // VisNode.match_path, by the other side's node plus one
  std::string children_;
  std::string notes_;
  std::vector<TableRow> rows_;
  NodeRows texts_;
};

// One object; a list of them where a record has several communications.
std::string PartnersText(const std::vector<CommunicationPartners::Communication>& communications) {
  std::string text;
  for (const CommunicationPartners::Communication& each : communications) {
    const std::string_view role = each.role == CommunicationPartners::Role::kSend      ? "send"
                                  : each.role == CommunicationPartners::Role::kReceive ? "receive"
                                                                                       : "send_receive";
    text += Cat(text.empty() ? "" : ",", "{\"communications_type\":\"", role, "\",\"nodes_info\":{");
    for (size_t i = 0; i < each.partners.size(); ++i) {
      const CommunicationPartners::Partner& partner = each.partners[i];
      text += Cat(i == 0 ? "" : ",", "\"", partner.rank, "\":[\"", partner.mark, "\",");
      AppendJsonText(partner.name, text);
      text += ']';
    }
    text += "}}";
  }
  return communications.size() > 1 ? Cat("[", text, "]") : text;
}

// `place` says where both sides stand: the target.
VisNode HeadOf(std::string_view side, const ExportedStep& place, const ExportedStep& given,
               std::string_view tensor_directory) {
  VisNode head;
  head.side = side;
  head.step = place.step;
  head.rank = place.rank;
  if (given.table->table().mode == StepTable::Mode::kTensor) head.tensor_directory = tensor_directory;
  return head;
}

}  // namespace

absl::Status CheckCalls(const ExportedStep& step, const std::function<void(const std::string& warning)>& warn) {
  if (step.merged != nullptr) return absl::OkStatus();  // its ranks were checked
  const DumpFiles* const files = step.files;
  const auto beside = [&](const char* name) {
    return (std::filesystem::path(files->dump).parent_path() / name).string();
  };
  if (step.table->table().calls.empty()) {
    const std::string where =
        files == nullptr ? Cat("run \"", step.source, "\", step ", step.step) : beside("construct.json");
    return absl::InvalidArgumentError(
        Cat(where,
            files == nullptr           ? " has no modules"
            : files->construct.empty() ? " is missing"
                                       : " names no module",
            ": a graph needs to know which module called what; capture with level L0 or mix"));
  }
  if (files != nullptr && files->stacks.empty() && warn) {
    warn(Cat(beside("stack.json"), " is missing: the graph shows no stacks"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<VisExport>> VisExport::Begin(std::string path, VisOptions options) {
  auto database = VisDatabase::Create(std::move(path));
  if (!database.ok()) return database.status();
  return std::unique_ptr<VisExport>(new VisExport(*std::move(database), std::move(options)));
}

absl::Status VisExport::Add(const ExportedStep& target, const ExportedStep& golden) {
  config_.steps.insert(target.step);
  config_.ranks.insert(target.rank);
  config_.overflow = options_.overflow;
  std::future<absl::StatusOr<Side>> other;
  if (!golden.empty()) {
    other = std::async(std::launch::async, MakeSide, std::cref(golden), options_.overflow, "the golden side");
  }
  auto ours = MakeSide(target, options_.overflow, "the target");
  if (!ours.ok()) return ours.status();
  config_.micro_steps = std::max(config_.micro_steps, ours->graph.micro_steps());
  const std::string tensors = target.tensor_directory();
  const VisNode head = HeadOf(kTarget, target, target, tensors);
  if (golden.empty()) {
    return SideWriter(*database_, *ours, nullptr, nullptr, nullptr, false, partners_[0]).Write(head);
  }
  auto theirs = other.get();
  if (!theirs.ok()) return theirs.status();
  for (const auto& [graph, which] : {std::pair(&ours->graph, "the target"), {&theirs->graph, "the golden side"}}) {
    if (absl::Status status = CheckDepth(*graph, which); !status.ok()) return status;
  }
  const GraphMatch match = MatchGraphs(options_, ours->graph, ours->table, theirs->graph, theirs->table, renamed_);
  AlignMicroSteps(ours->graph, match, theirs->graph);
  MindstudioNodes::Entries entries;
  for (size_t i = 0; i < ours->graph.nodes().size(); ++i) {
    const int32_t partner = match.golden_of[i];
    entries.emplace_back(ours->graph.nodes()[i].entry, partner < 0 ? -1 : theirs->graph.node(partner).entry);
  }
  auto compared = MindstudioNodes::Make(*target.table, *golden.table, entries, options_.content);
  if (!compared.ok()) return compared.status();
  config_.compare = true;
  config_.task = TaskName(*compared);
  config_.tool_tip = ToolTip(*compared);
  config_.node_colours = NodeColours(*compared);
  const bool checksums = compared->mode() == StepTable::Mode::kChecksum;
  absl::Status status =
      SideWriter(*database_, *ours, &*theirs, &match.golden_of, &*compared, checksums, partners_[0]).Write(head);
  if (!status.ok()) return status;
  const std::string golden_tensors = golden.tensor_directory();
  return SideWriter(*database_, *theirs, &*ours, &match.target_of, nullptr, checksums, partners_[1])
      .Write(HeadOf(kGolden, target, golden, golden_tensors));
}

GraphMatch MatchGraphs(const VisOptions& options, const StepGraph& target, const StepTable& target_table,
                       const StepGraph& golden, const StepTable& golden_table, bool& renamed) {
  if (!options.layers && AcrossFrameworks(target_table, golden_table)) {
    return MatchNodesByEntries(
        target, golden, EntriesByMapping(target_table, golden_table, MappingFor({}, target_table, golden_table)));
  }
  if (options.fuzzy) return MatchNodesFuzzily(target, golden);
  if (!options.layers) return MatchNodes(target, golden);
  const LayerMatch layers = EntriesOfLayers(target_table, golden_table, *options.layers);
  renamed = renamed || layers.renamed;
  return MatchNodesByEntries(target, golden, layers.golden_of);
}

absl::Status CheckDepth(const StepGraph& graph, std::string_view which) {
  std::vector<size_t> depths(graph.nodes().size(), 0);
  for (auto number = graph.order().rbegin(); number != graph.order().rend(); ++number) {
    const GraphNode& node = graph.node(*number);
    size_t& depth = depths[static_cast<size_t>(*number)];
    depth = node.parent < 0 ? 0 : depths[static_cast<size_t>(node.parent)] + 1;
    if (depth <= kMostLevels) continue;
    return absl::InvalidArgumentError(Cat(which, ": ", node.name, " lies in more than ", kMostLevels - 1,
                                          " other modules; a graph takes ", kMostLevels, " levels"));
  }
  return absl::OkStatus();
}

absl::Status CheckRenamed(const VisOptions& options, bool renamed) {
  if (renamed || options.fuzzy || !options.layers || options.layers->empty()) return absl::OkStatus();
  std::string classes;
  for (const auto& [type, names] : *options.layers) classes += Cat(classes.empty() ? "" : ", ", type);
  return absl::InvalidArgumentError(Cat(options.layers_file.empty() ? "the layer mapping" : options.layers_file,
                                        " renames no module: inside modules of the classes that it has (", classes,
                                        ") the target has none of the names on its left sides"));
}

std::optional<double> PrecisionOfNode(const StepGraph& graph, int32_t node, const MindstudioNodes& compared,
                                      std::vector<TableRow>& rows) {
  const Severity severity = compared.Judge(static_cast<size_t>(node), rows);
  if (rows.empty()) return std::nullopt;
  if (IsIgnored(graph.node(node).name)) return compared.mode() == StepTable::Mode::kChecksum ? 1 : 0;
  return PrecisionOf(severity);
}

absl::Status VisExport::Finish() {
  if (absl::Status status = CheckRenamed(options_, renamed_); !status.ok()) return status;
  for (const CommunicationPartners& side : partners_) {
    absl::Status status = side.ForEach([&](int64_t node, uint32_t, std::string_view, const auto& communications) {
      return database_->SetPartners(node, PartnersText(communications));
    });
    if (!status.ok()) return status;
  }
  return database_->Finish(config_);
}

}  // namespace msprobe::server
