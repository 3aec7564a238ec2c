#include "server/analysis/graph/rank_merge.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/analysis/compat/mindstudio_cells.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kAllRanks = "Apis_Between_Modules_All_Ranks";
constexpr double kUncertainty = 1e-6;  // relative, of means and norms that kernels sum in any order
constexpr std::array<std::string_view, 4> kStatistics = {"Max", "Min", "Mean", "Norm"};
constexpr size_t kMean = 2;
constexpr size_t kNorm = 3;

// A row, and the table that its texts are in.
struct Value {
  std::string name;
  const StepTable* table = nullptr;
  Row row;
};

struct Node {
  using Children = std::shared_ptr<std::vector<Node*>>;

  std::string name;
  GraphNode::Kind kind = GraphNode::Kind::kModule;
  uint32_t rank = 0;
  uint32_t micro_step = 0;
  const StepTable* table = nullptr;
  int32_t stack = -1;
  Node* parent = nullptr;
  Children children = std::make_shared<std::vector<Node*>>();  // shared while someone walks it
  std::vector<Value> inputs;
  std::vector<Value> outputs;
  std::vector<std::string> notes;
  // Of a pipeline.
  bool other_layer = false;  // every rank has another one
  std::optional<int> layer;  // its number in the whole model
};

// Nodes by name, in the order in which the names came.
class NodesByName {
 public:
  Node* Find(const std::string& name) const {
    const auto found = places_.find(name);
    return found == places_.end() ? nullptr : in_order_.at(found->second);
  }
  // Takes the place of one of the same name.
  void Put(const std::string& name, Node* node) {
    const auto [found, added] = places_.try_emplace(name, next_);
    if (added) ++next_;
    in_order_[found->second] = node;
  }
  void Erase(const std::string& name) {
    const auto found = places_.find(name);
    if (found == places_.end()) return;
    in_order_.erase(found->second);
    places_.erase(found);
  }
  std::vector<Node*> InOrder() const {
    std::vector<Node*> nodes;
    for (const auto& [place, node] : in_order_) nodes.push_back(node);
    return nodes;
  }

 private:
  absl::flat_hash_map<std::string, uint64_t> places_;
  std::map<uint64_t, Node*> in_order_;
  uint64_t next_ = 0;
};

struct Tree {
  uint32_t rank = 0;
  const StepTable* table = nullptr;
  uint32_t micro_steps = 1;
  Node* root = nullptr;
  NodesByName nodes;
  int collections = 0;  // of all ranks
};
using Trees = std::vector<Tree*>;

std::string Replaced(std::string_view text, std::string_view from, std::string_view to) {
  return absl::StrReplaceAll(AbslView(text), {{AbslView(from), AbslView(to)}});
}

void Rename(Node& node, const std::string& from, std::string to) {
  node.name = std::move(to);
  for (std::vector<Value>* values : {&node.inputs, &node.outputs}) {
    for (Value& value : *values) value.name = Replaced(value.name, from, node.name);
  }
}

// "Torch.add_rank1.0.forward" of "Torch.add.0.forward".
std::string WithRank(std::string_view name, std::string_view rank) {
  std::vector<std::string> parts;
  for (std::string_view part : PartsOfName(name)) parts.emplace_back(part);
  if (parts.size() > 1) parts[1] += Cat("_rank", rank);
  return absl::StrJoin(parts, ".");
}

// The places of numbers of layers ("3" of "layers.3.mlp") in a name.
std::vector<std::pair<size_t, size_t>> LayerNumbers(std::string_view name) {
  std::vector<std::pair<size_t, size_t>> places;
  for (size_t at = name.find("layer"); at != std::string_view::npos; at = name.find("layer", at + 1)) {
    size_t begin = at + 5;
    if (begin < name.size() && name[begin] == 's') ++begin;
    if (begin >= name.size() || name[begin] != '.') continue;
    size_t end = ++begin;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    if (end > begin && end < name.size() && name[end] == '.') places.emplace_back(begin, end);
  }
  return places;
}

bool IsLayer(std::string_view name) { return !LayerNumbers(name).empty(); }

std::string WithLayer(std::string name, std::string_view number) {
  const auto places = LayerNumbers(name);
  for (size_t i = places.size(); i-- > 0;) {
    name.replace(places[i].first, places[i].second - places[i].first, number);
  }
  return name;
}

// What "%POSITION%RANK" at the end of a name says; it marks nodes that came from another rank of the pipeline.
struct Mark {
  int position = 0;
  int rank = 0;
  size_t begin = 0;  // of the mark in the name
};
std::optional<Mark> MarkOf(std::string_view name) {
  const size_t second = name.rfind('%');
  if (second == std::string_view::npos || second == 0) return std::nullopt;
  const size_t first = name.rfind('%', second - 1);
  if (first == std::string_view::npos) return std::nullopt;
  Mark mark;
  mark.begin = first;
  if (!absl::SimpleAtoi(AbslView(name.substr(first + 1, second - first - 1)), &mark.position) ||
      !absl::SimpleAtoi(AbslView(name.substr(second + 1)), &mark.rank)) {
    return std::nullopt;
  }
  return mark;
}

bool IsForward(std::string_view name) {
  return name.find(".forward.") != std::string_view::npos || name.find(".forward%") != std::string_view::npos;
}

std::vector<std::string> Around(const Node& node) {
  std::vector<std::string> names;
  for (const Node* at = node.parent; at != nullptr; at = at->parent) names.push_back(at->name);
  return names;
}

bool IsNumber(const Cell& cell) { return cell.is_number() || cell.kind == Cell::Kind::kBoolean; }

std::string TextOf(const Cell& cell) {
  std::string text;
  if (cell.kind == Cell::Kind::kReal) {
    AppendReal(cell.real, text);
  } else if (cell.kind == Cell::Kind::kBoolean) {
    text = cell.integer != 0 ? "True" : "False";
  } else {
    AppendInteger(cell.integer, text);
  }
  return text;
}

// Whether ranks may have different parts of it.
bool IsShared(const Value& value) {
  const std::string_view dtype = value.table->text(value.row.dtype);
  for (std::string_view known : {"torch.int8", "torch.int32", "torch.int64", "torch.bfloat16", "torch.float16",
                                 "torch.float32", "torch.float64", "Float16", "Float32", "BFloat16"}) {
    if (dtype == known) return true;
  }
  return false;
}

bool SameNumber(const Cell& a, const Cell& b, bool uncertain) {
  if (!IsNumber(a) || !IsNumber(b)) return true;
  if (!uncertain) return a.number() == b.number();
  const double difference = std::fabs(a.number() - b.number());
  if (std::isnan(difference)) return std::isnan(a.number()) && std::isnan(b.number());
  if (std::isinf(difference)) return std::isinf(a.number()) && std::isinf(b.number());
  return (a.number() == 0 ? difference : std::fabs(difference / a.number())) < kUncertainty;
}

bool SameValues(const Value& a, const Value& b, bool uncertain) {
  for (size_t i = 0; i < kStatistics.size(); ++i) {
    if (!SameNumber(a.row.statistics[i], b.row.statistics[i], uncertain && i >= kMean)) return false;
  }
  return true;
}

// To the nearest number of so many binary digits, even in a tie.
double ToDigits(double value, int digits, int smallest_exponent, double largest) {
  const auto narrow = static_cast<float>(value);
  if (narrow == 0 || !std::isfinite(narrow)) return narrow;
  const double unit = std::ldexp(1, std::max(std::ilogb(narrow), smallest_exponent) - digits + 1);
  const double rounded = std::nearbyint(narrow / unit) * unit;
  return std::fabs(rounded) > largest ? std::copysign(std::numeric_limits<double>::infinity(), rounded) : rounded;
}

// A statistic of a tensor has the tensor's precision.
double InPrecisionOf(std::string_view dtype, double value) {
  if (!std::isfinite(value)) return value;
  if (dtype == "torch.float32" || dtype == "Float32") return static_cast<float>(value);
  if (dtype == "torch.bfloat16" || dtype == "BFloat16") {
    return ToDigits(value, 8, -126, std::numeric_limits<float>::max());
  }
  if (dtype == "torch.float16" || dtype == "Float16") return ToDigits(value, 11, -14, 65504);
  return value;
}

// A value of the first rank, and the same of others.
struct Differing {
  std::string key;  // without the node's name
  std::vector<Value*> values;
};
using Differences = std::vector<Differing>;

Differences DifferencesOf(Node& main, const std::vector<Node*>& others, std::vector<Value> Node::*which,
                          bool by_values) {
  Differences found;
  if (others.empty()) return found;
  for (Value& value : main.*which) {
    if (!IsShared(value)) continue;
    bool same = by_values;
    Differing differing{Replaced(value.name, Cat(main.name, "."), ""), {&value}};
    for (Node* other : others) {
      const std::string name = Replaced(value.name, main.name, other->name);
      std::vector<Value>& values = other->*which;
      const auto partner = std::find_if(values.begin(), values.end(), [&](const Value& v) { return v.name == name; });
      if (partner == values.end() || !IsShared(*partner)) break;
      differing.values.push_back(&*partner);
      same = same && SameValues(value, *partner, /*uncertain=*/true);
    }
    if (!same) found.push_back(std::move(differing));
  }
  return found;
}

// Gives the statistic of the first value what all have together; says how.
void MergeStatistic(size_t statistic, const Differing& differing, std::vector<std::string>& notes) {
  std::vector<std::string> texts;
  for (const Value* value : differing.values) {
    if (!IsNumber(value->row.statistics[statistic])) return;
    texts.push_back(TextOf(value->row.statistics[statistic]));
  }
  Cell merged = differing.values.front()->row.statistics[statistic];
  double sum = 0;
  for (const Value* value : differing.values) {
    const Cell& cell = value->row.statistics[statistic];
    const double number = cell.number();
    sum += statistic == kNorm ? std::pow(number, 2.0) : number;
    if (statistic == 0 ? number > merged.number() : number < merged.number()) merged = cell;
  }
  std::string formula;
  if (statistic < kMean) {
    formula = Cat(statistic == 0 ? "max(" : "min(", absl::StrJoin(texts, ", "), ")");
  } else if (statistic == kMean) {
    formula = Cat("(", absl::StrJoin(texts, " + "), ") / ", texts.size());
    merged = Cell::Real(sum / static_cast<double>(texts.size()));
  } else {
    formula = Cat("(", absl::StrJoin(texts, " ** 2 + "), " ** 2) ** 0.5");
    merged = Cell::Real(std::pow(sum, 0.5));
  }
  Value& value = *differing.values.front();
  if (merged.kind == Cell::Kind::kReal) merged.real = InPrecisionOf(value.table->text(value.row.dtype), merged.real);
  value.row.statistics[statistic] = merged;
  value.row.extended = -1;
  notes.push_back(Cat("The ", kStatistics[statistic], " value merging method for ", differing.key, " is: ", formula,
                      " = ", TextOf(merged)));
}

void MergeValues(const Differences& differences, std::vector<std::string>& notes) {
  for (const Differing& differing : differences) {
    if (differing.values.size() < 2) continue;
    for (size_t i = 0; i < kStatistics.size(); ++i) MergeStatistic(i, differing, notes);
  }
}

void NoteRanks(Node& main, const std::vector<Node*>& others) {
  std::string ranks = Cat(main.rank);
  for (const Node* other : others) ranks += Cat(", ", other->rank);
  main.notes.push_back(Cat(
      "This data is the merged data after tensor parallelism(TP), and the data is merged from rank [", ranks, "]."));
}

// The numbers of "[0, 1]".
std::vector<uint32_t> NumbersIn(std::string_view text) {
  std::vector<uint32_t> numbers;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    uint32_t number = 0;
    if (end > i && absl::SimpleAtoi(AbslView(text.substr(i, end - i)), &number)) numbers.push_back(number);
    i = end + 1;
  }
  return numbers;
}

const Cell* ArgumentOf(const Node& node, std::string_view argument) {
  const std::string name = Cat(node.name, ".input.", argument);
  for (const Value& value : node.inputs) {
    if (value.name == name) return &value.row.statistics[0];
  }
  return nullptr;
}

std::optional<uint32_t> RankIn(const Cell& cell) {
  if (cell.kind == Cell::Kind::kInteger) return static_cast<uint32_t>(cell.integer);
  uint32_t rank = 0;
  if (cell.kind == Cell::Kind::kText && absl::SimpleAtoi(AbslView(cell.view()), &rank)) return rank;
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorElements>> MergedStep::OpenTensor(const Row& row) const {
  return absl::NotFoundError(Cat(row.name, ": contents of merged ranks are not merged"));
}

class RankMerge {
 public:
  RankMerge(const std::vector<RankGraph>& ranks, const ParallelLayout& layout) : layout_(layout) {
    for (const RankGraph& rank : ranks) Load(rank);
  }

  absl::StatusOr<std::vector<std::unique_ptr<MergedStep>>> Run() {
    Trees all;
    for (Tree& tree : trees_) all.push_back(&tree);
    Trees results;
    absl::Status status;
    const uint32_t size = layout_.ranks;
    if (size == 1) {
      MergeCollections(all);
      results = all;
    } else if (layout_.tensor == size || (layout_.pipeline == 1 && layout_.pipeline != size)) {
      status = ForGroups(TensorGroups(), [&](const Trees& group) {
        MergeCollections(group);
        results.push_back(MergeTensors(group, {}));
      });
    } else if (layout_.pipeline == size || layout_.tensor == 1) {
      status = ForGroups(PipelineGroups(), [&](const Trees& group) {
        MergeCollections(group);
        results.push_back(MergePipeline(group));
      });
    } else {
      status = MergeBoth(all, results);
    }
    if (!status.ok()) return status;
    std::vector<std::unique_ptr<MergedStep>> merged;
    for (const Tree* tree : results) merged.push_back(Build(*tree));
    return merged;
  }

 private:
  using Partners = absl::flat_hash_map<uint32_t, std::vector<uint32_t>>;  // other ranks that share a rank's tensors

  Node* Make(std::string name, GraphNode::Kind kind, uint32_t rank) {
    Node& node = nodes_.emplace_back();
    node.name = std::move(name);
    node.kind = kind;
    node.rank = rank;
    return &node;
  }

  void Load(const RankGraph& given) {
    Tree& tree = trees_.emplace_back();
    tree.rank = given.rank;
    tree.table = given.table;
    tree.micro_steps = given.graph->micro_steps();
    std::vector<Node*> nodes;
    for (const GraphNode& each : given.graph->nodes()) {
      Node* const node = Make(std::string(each.name), each.kind, given.rank);
      nodes.push_back(node);
      node->table = given.table;
      node->stack = each.stack;
      node->micro_step = each.micro_step;
      tree.nodes.Put(node->name, node);
      if (each.entry < 0) continue;
      const Entry& entry = given.table->entries[static_cast<size_t>(each.entry)];
      for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
        const Row& row = given.table->rows[i];
        const bool output =
            absl::StrContains(AbslView(row.name), ".output.") && !absl::StrContains(AbslView(row.name), ".input.");
        (output ? node->outputs : node->inputs).push_back({std::string(row.name), given.table, row});
      }
    }
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const int32_t child : given.graph->nodes()[i].children) {
        nodes[i]->children->push_back(nodes[static_cast<size_t>(child)]);
        nodes[static_cast<size_t>(child)]->parent = nodes[i];
      }
    }
    tree.root = nodes.front();
  }

  template <typename Merge>
  absl::Status ForGroups(const RankGroups& groups, Merge merge) {
    for (const std::vector<uint32_t>& group : groups) {
      auto trees = TreesOf(group);
      if (!trees.ok()) return trees.status();
      merge(*trees);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Trees> TreesOf(const std::vector<uint32_t>& ranks) {
    Trees found;
    for (const uint32_t rank : ranks) {
      const auto tree = std::find_if(trees_.begin(), trees_.end(), [&](const Tree& each) { return each.rank == rank; });
      if (tree == trees_.end()) {
        return absl::InvalidArgumentError(Cat("rank ", rank, " belongs to the layout and is not there"));
      }
      found.push_back(&*tree);
    }
    return found;
  }

  // Communications say which ranks share tensors.
  RankGroups TensorGroups() const {
    RankGroups groups;
    for (const Tree& tree : trees_) {
      for (const Node* node : tree.nodes.InOrder()) {
        if (!absl::StrContains(node->name, "reduce_scatter") && !absl::StrContains(node->name, "all_reduce")) continue;
        const Cell* const group = ArgumentOf(*node, "group");
        const std::vector<uint32_t> ranks =
            group == nullptr || group->kind != Cell::Kind::kText ? std::vector<uint32_t>() : NumbersIn(group->view());
        if (!ranks.empty() && std::find(groups.begin(), groups.end(), ranks) == groups.end()) groups.push_back(ranks);
        break;
      }
    }
    return !groups.empty() && groups[0].size() == layout_.tensor ? groups : GroupsOf(layout_, "tp");
  }

  // Which rank a rank sends to first.
  static std::optional<uint32_t> NextOf(const Tree& tree) {
    for (const Node* node : tree.nodes.InOrder()) {
      if (!node->name.starts_with("Distributed.")) continue;
      if (absl::StrContains(node->name, ".batch_isend_irecv.")) {
        const auto entry = std::find_if(tree.table->entries.begin(), tree.table->entries.end(),
                                        [&](const Entry& each) { return each.name == node->name; });
        if (entry == tree.table->entries.end()) continue;
        for (const PointToPoint& each : tree.table->messages) {
          if (each.row < entry->first_row || each.row >= entry->first_row + entry->rows) continue;
          if (each.op == "isend" && each.peer != tree.rank) return static_cast<uint32_t>(each.peer);
        }
      } else if (absl::StrContains(node->name, ".send.") || absl::StrContains(node->name, ".isend.")) {
        const Cell* const to = ArgumentOf(*node, "dst");
        if (const std::optional<uint32_t> rank = to == nullptr ? std::nullopt : RankIn(*to)) return rank;
      }
    }
    return std::nullopt;
  }

  RankGroups PipelineGroups() const {
    std::map<uint32_t, uint32_t> next;
    std::vector<uint32_t> senders;
    for (const Tree& tree : trees_) {
      if (const std::optional<uint32_t> to = NextOf(tree)) {
        next[tree.rank] = *to;
        senders.push_back(tree.rank);
      }
    }
    RankGroups groups;
    absl::flat_hash_set<uint32_t> seen;
    for (uint32_t rank : senders) {
      std::vector<uint32_t> group;
      while (next.contains(rank) && seen.insert(rank).second) {
        group.push_back(rank);
        rank = next[rank];
      }
      if (!group.empty()) groups.push_back(std::move(group));
    }
    return !groups.empty() && groups[0].size() == layout_.pipeline ? groups : GroupsOf(layout_, "pp");
  }

  absl::Status MergeBoth(const Trees& all, Trees& results) {
    const RankGroups pipelines = PipelineGroups();
    const RankGroups shares = TensorGroups();
    Partners partners;
    for (size_t i = 1; i < shares.size(); ++i) {
      partners[shares[i].front()] = std::vector<uint32_t>(shares[i].begin() + 1, shares[i].end());
    }
    const bool one_model = layout_.tensor * layout_.pipeline == layout_.ranks;
    if (one_model) MergeCollections(all);
    std::map<uint32_t, Tree*> whole;  // by the first rank of a pipeline
    Trees in_order;
    absl::Status status = ForGroups(pipelines, [&](const Trees& group) {
      if (!one_model) MergeCollections(group);
      Tree* const merged = MergePipeline(group);
      whole[merged->rank] = merged;
      in_order.push_back(merged);
    });
    if (!status.ok()) return status;
    if (one_model) {
      Tree* const merged = MergeTensors(in_order, partners);
      SortCollections(*merged);
      results.push_back(merged);
      return absl::OkStatus();
    }
    for (const std::vector<uint32_t>& share : shares) {
      Trees group;
      for (const uint32_t rank : share) {
        if (const auto found = whole.find(rank); found != whole.end()) group.push_back(found->second);
      }
      if (group.empty()) continue;
      MergeCollections(group);
      Tree* const merged = MergeTensors(group, partners);
      SortCollections(*merged);
      results.push_back(merged);
    }
    return absl::OkStatus();
  }

  // API calls between modules: one collection with one of each rank in it.
  void MergeCollections(const Trees& group) {
    Tree& main = *group.front();
    auto children = std::make_shared<std::vector<Node*>>();
    for (Node* node : *main.root->children) {
      if (node->name.starts_with(kAllRanks)) {
        children->push_back(node);
        for (size_t i = 1; i < group.size(); ++i) {
          const Node* const other = group[i]->nodes.Find(node->name);
          if (other == nullptr) continue;
          for (Node* each : *other->children) {
            each->parent = node;
            PutAll(main, *each);
            node->children->push_back(each);
          }
        }
      } else if (node->name.starts_with(StepGraph::kCollection)) {
        Node* const together = Make(Cat(kAllRanks, ".", main.collections++), GraphNode::Kind::kCollection, main.rank);
        together->parent = main.root;
        together->micro_step = node->micro_step;
        main.nodes.Put(together->name, together);
        children->push_back(together);
        const std::string name = node->name;
        main.nodes.Erase(name);
        AddCollection(main, main.rank, *node, *together);
        for (size_t i = 1; i < group.size(); ++i) {
          Node* const other = group[i]->nodes.Find(name);
          if (other == nullptr) continue;
          for (Node* each : *other->children) {
            const std::string before = each->name;
            Rename(*each, before, WithRank(before, Cat(group[i]->rank)));
            main.nodes.Put(each->name, each);
          }
          AddCollection(main, group[i]->rank, *other, *together);
        }
      } else {
        children->push_back(node);
      }
    }
    main.root->children = children;
  }

  static void AddCollection(Tree& main, uint32_t rank, Node& node, Node& together) {
    node.name = Cat(StepGraph::kCollection, "_Rank", rank, ".", node.name.substr(node.name.rfind('.') + 1));
    node.parent = &together;
    together.children->push_back(&node);
    main.nodes.Put(node.name, &node);
  }

  static void PutAll(Tree& main, Node& node) {
    main.nodes.Put(node.name, &node);
    for (Node* child : *node.children) PutAll(main, *child);
  }

  static void SortCollections(Tree& tree) {
    const auto rank_of = [](const Node* node) {
      const size_t at = node->name.find("_Rank");
      return at == std::string::npos ? 0 : std::strtol(node->name.c_str() + at + 5, nullptr, 10);
    };
    for (Node* node : *tree.root->children) {
      if (!node->name.starts_with(kAllRanks)) continue;
      std::stable_sort(node->children->begin(), node->children->end(),
                       [&](const Node* a, const Node* b) { return rank_of(a) < rank_of(b); });
    }
  }

  // --- Ranks that share tensors.

  // The same node of the others; none unless all have it, with the same modules around it.
  static std::vector<Node*> PartnersOf(const Node& node, const Trees& group, const Partners& partners) {
    std::vector<Node*> found;
    const size_t mark = node.name.find("_rank");
    std::optional<uint32_t> rank;
    size_t end = mark;
    if (!partners.empty() && mark != std::string::npos) {
      end = mark + 5;
      while (end < node.name.size() && node.name[end] >= '0' && node.name[end] <= '9') ++end;
      uint32_t number = 0;
      if (end < node.name.size() && node.name[end] == '.' &&
          absl::SimpleAtoi(node.name.substr(mark + 5, end - mark - 5), &number)) {
        rank = number;
      }
    }
    const std::vector<uint32_t>* others = nullptr;
    if (rank) {
      const auto known = partners.find(*rank);
      if (known == partners.end() || known->second.size() + 1 != group.size()) return {};
      others = &known->second;
    }
    for (size_t i = 1; i < group.size(); ++i) {
      const std::string name =
          rank ? Cat(node.name.substr(0, mark), "_rank", (*others)[i - 1], node.name.substr(end)) : node.name;
      Node* const other = group[i]->nodes.Find(name);
      if (other == nullptr || Around(node) != Around(*other)) return {};
      found.push_back(other);
    }
    return found;
  }

  static bool IsApart(std::string_view name) { return name == "optimizer" || name == "clip_grad"; }

  Tree* MergeTensors(const Trees& group, const Partners& partners) {
    Tree* const main = group.front();
    if (group.size() < 2) return main;
    const std::vector<Node*> nodes = main->nodes.InOrder();
    for (Node* node : nodes) {
      if (node->parent == nullptr || node->parent->kind != GraphNode::Kind::kModule || IsApart(node->parent->name) ||
          node->name.starts_with("Distributed") || !node->notes.empty()) {
        continue;
      }
      TakeReduced(*node, group, partners);
      const std::vector<Node*> others = PartnersOf(*node, group, partners);
      const Differences inputs = DifferencesOf(*node, others, &Node::inputs, /*by_values=*/true);
      const Differences outputs = DifferencesOf(*node, others, &Node::outputs, /*by_values=*/true);
      if (inputs.empty() && outputs.empty()) continue;
      NoteRanks(*node, others);
      MergeValues(inputs, node->notes);
      MergeValues(outputs, node->notes);
    }
    for (Node* node : nodes) MergeColumnToRow(*node, group, partners);
    return main;
  }

  // "RowParallelLinear" and "forward" of "Module.x.RowParallelLinear.forward.0".
  static bool IsCall(const Node& node, std::string_view direction, std::string_view of) {
    const std::vector<std::string_view> parts = PartsOfName(node.name);
    return node.kind == GraphNode::Kind::kModule && parts.size() >= 4 && parts[parts.size() - 2] == direction &&
           parts[parts.size() - 3].find(of) != std::string_view::npos;
  }

  // A rank's matmul has a part of the sum; what it passes on is reduced.
  static void TakeReduced(Node& node, const Trees& group, const Partners& partners) {
    if (!IsCall(node, "forward", "RowParallelLinear") && !IsCall(node, "backward", "ColumnParallelLinear")) return;
    std::vector<Node*> products;
    std::vector<Node*> reductions;
    for (Node* child : *node.children) {
      if (absl::StrContains(child->name, "matmul")) products.push_back(child);
      if (absl::StrContains(child->name, "_reduce_scatter_base") ||
          absl::StrContains(child->name, "reduce_scatter_tensor") || absl::StrContains(child->name, "all_reduce")) {
        reductions.push_back(child);
      }
    }
    for (Node* product : products) {
      if (product->outputs.empty()) continue;
      Value& result = product->outputs.front();
      for (Node* reduction : std::vector<Node*>(reductions)) {
        const size_t input = absl::StrContains(reduction->name, "all_reduce") ? 0 : 1;
        if (reduction->outputs.empty() || reduction->inputs.size() <= input ||
            !SameValues(result, reduction->inputs[input], /*uncertain=*/false)) {
          continue;
        }
        const std::vector<Node*> others = PartnersOf(*product, group, partners);
        const Differences inputs = DifferencesOf(*product, others, &Node::inputs, /*by_values=*/true);
        if (!inputs.empty()) {
          NoteRanks(*product, others);
          MergeValues(inputs, product->notes);
        }
        result.row.statistics = reduction->outputs.front().row.statistics;
        result.row.extended = -1;
        product->notes.push_back(Cat("The output of this data is merged from ", reduction->outputs.front().name));
        std::erase(reductions, reduction);
        break;
      }
    }
  }

  // From a column-parallel linear layer to the row-parallel one that ends the block.
  static void MergeColumnToRow(Node& node, const Trees& group, const Partners& partners) {
    if (!node.notes.empty() || node.parent == nullptr || !IsCall(node, "forward", "ColumnParallelLinear")) return;
    const std::vector<Node*>& around = *node.parent->children;
    size_t begin = around.size();
    size_t end = around.size();
    for (size_t i = 0; i < around.size(); ++i) {
      if (absl::StrContains(around[i]->name, node.name)) {
        begin = i;
      } else if (absl::StrContains(around[i]->name, "RowParallelLinear")) {
        end = i;
      }
    }
    if (begin == around.size() || end == around.size() || end <= begin) return;
    std::vector<Node*> waiting(around.begin() + static_cast<ptrdiff_t>(begin),
                               around.begin() + static_cast<ptrdiff_t>(end) + 1);
    const std::string first = waiting.front()->name;
    const std::string last = waiting.back()->name;
    while (!waiting.empty()) {
      Node& at = *waiting.back();
      waiting.pop_back();
      waiting.insert(waiting.end(), at.children->rbegin(), at.children->rend());
      if (!at.notes.empty() || at.name.starts_with("Distributed")) continue;
      const std::vector<Node*> others = PartnersOf(at, group, partners);
      Differences inputs = DifferencesOf(at, others, &Node::inputs, /*by_values=*/false);
      Differences outputs = DifferencesOf(at, others, &Node::outputs, /*by_values=*/false);
      if (inputs.empty() && outputs.empty()) continue;
      NoteRanks(at, others);
      // The whole of a tensor goes into the first layer, and comes out of the last.
      const auto belongs_to = [&](const std::string& layer) {
        return at.name == layer ||
               (absl::StrContains(at.name, "matmul") && at.parent != nullptr && at.parent->name == layer);
      };
      if (belongs_to(first)) {
        std::erase_if(inputs, [](const Differing& each) { return each.key == "input.0"; });
      } else if (belongs_to(last)) {
        outputs.clear();
        std::erase_if(inputs, [](const Differing& each) { return each.key == "parameters.bias"; });
      }
      MergeValues(inputs, at.notes);
      MergeValues(outputs, at.notes);
    }
  }

  // --- Ranks of a pipeline.

  Tree* MergePipeline(const Trees& group) {
    Tree* const main = group.front();
    if (group.size() < 2) return main;
    const Node::Children children = main->root->children;
    for (size_t i = 0; i < children->size(); ++i) {  // grows
      Node* const node = (*children)[i];
      if (node->kind != GraphNode::Kind::kModule || IsApart(node->name)) continue;
      MergeLayers(*main, *node, group);
      Sort(*main, node);
    }
    AddLayersOfRoots(*main, group);
    return main;
  }

  void MergeLayers(Tree& main, Node& node, const Trees& group) {
    std::vector<Node*> others;
    for (size_t i = 1; i < group.size(); ++i) {
      Node* const other = group[i]->nodes.Find(node.name);
      if (other == nullptr) return;
      others.push_back(other);
    }
    const bool inputs = !DifferencesOf(node, others, &Node::inputs, /*by_values=*/true).empty();
    const bool outputs = !DifferencesOf(node, others, &Node::outputs, /*by_values=*/true).empty();
    bool other_layers = inputs && outputs && IsLayer(node.name);
    if (absl::StrContains(node.name, ".backward.")) {  // a backward call may lack results: its forward call decides
      const Node* const forward = main.nodes.Find(Replaced(node.name, ".backward.", ".forward."));
      other_layers = other_layers || (forward != nullptr && forward->other_layer);
    }
    if (other_layers) {
      node.other_layer = true;
      for (Node* other : others) {
        MarkAll(*other, other->rank);
        AddTo(main, *other);
        other->parent = node.parent;
        node.parent->children->push_back(other);
      }
      return;
    }
    if (!inputs && outputs && absl::StrContains(node.name, ".forward.")) {
      node.outputs = others.back()->outputs;
    } else if (inputs && !outputs && absl::StrContains(node.name, ".backward.")) {
      node.inputs = others.back()->inputs;
    }
    AddOwn(main, node, others);
    const Node::Children children = node.children;
    for (size_t i = 0; i < children->size(); ++i) {  // grows
      if ((*children)[i]->kind == GraphNode::Kind::kModule) MergeLayers(main, *(*children)[i], group);
    }
  }

  // What only one of the other ranks has in a module.
  static void AddOwn(Tree& main, Node& node, const std::vector<Node*>& others) {
    absl::flat_hash_map<std::string, int> owners;
    for (const Node* child : *node.children) ++owners[child->name];
    for (const Node* other : others) {
      absl::flat_hash_set<std::string> names;
      for (const Node* child : *other->children) {
        if (names.insert(child->name).second) ++owners[child->name];
      }
    }
    std::vector<Node*> own;
    for (const Node* other : others) {
      for (Node* child : *other->children) {
        if (owners[child->name] == 1) own.push_back(child);
      }
    }
    for (Node* child : own) {
      MarkAll(*child, child->rank);
      AddTo(main, *child);
      node.children->push_back(child);
      child->parent = &node;
    }
  }

  static void MarkAll(Node& node, uint32_t rank) {
    const std::vector<Node*>& around = *node.parent->children;
    const auto at =
        std::find_if(around.begin(), around.end(), [&](const Node* each) { return each->name == node.name; });
    node.name += Cat("%", at == around.end() ? 0 : at - around.begin(), "%", rank);
    for (Node* child : *node.children) MarkAll(*child, rank);
  }

  static void AddTo(Tree& main, Node& node) {
    if (main.nodes.Find(node.name) == nullptr) main.nodes.Put(node.name, &node);
    for (Node* child : *node.children) AddTo(main, *child);
  }

  // Brings nodes of other ranks behind this rank's (backward: before), and numbers layers through.
  void Sort(Tree& main, Node* from) {
    std::vector<Node*> waiting = {from};
    while (!waiting.empty()) {
      Node* const node = waiting.back();
      waiting.pop_back();
      if (MarkOf(node->name)) SortAround(main, *node);
      waiting.insert(waiting.end(), node->children->begin(), node->children->end());
    }
  }

  void SortAround(Tree& main, const Node& node) {
    const bool forward = IsForward(node.name);
    std::vector<Node*> ours;
    std::vector<Node*> theirs;
    for (Node* each : *node.parent->children) (MarkOf(each->name) ? theirs : ours).push_back(each);
    std::stable_sort(theirs.begin(), theirs.end(), [&](const Node* a, const Node* b) {
      const Mark one = *MarkOf(a->name);
      const Mark two = *MarkOf(b->name);
      return std::pair(forward ? one.rank : -one.rank, one.position) <
             std::pair(forward ? two.rank : -two.rank, two.position);
    });
    auto sorted = std::make_shared<std::vector<Node*>>(forward ? ours : theirs);
    sorted->insert(sorted->end(), forward ? theirs.begin() : ours.begin(), forward ? theirs.end() : ours.end());
    std::vector<Node*> by_time = *sorted;
    if (!forward) std::reverse(by_time.begin(), by_time.end());
    int layer = -1;
    for (Node* each : by_time) {
      if (IsLayer(each->name)) ++layer;
      if (MarkOf(each->name)) each->layer = layer;
    }
    node.parent->children = sorted;
    for (Node* each : theirs) NameByLayer(main, *each);
  }

  // The name in the whole model of a node of another rank, and of all below it.
  static void NameByLayer(Tree& main, Node& from) {
    std::vector<std::pair<Node*, std::string>> waiting = {{&from, ""}};
    while (!waiting.empty()) {
      auto [node, layer] = waiting.back();
      waiting.pop_back();
      const std::optional<Mark> mark = MarkOf(node->name);
      if (mark && main.nodes.Find(node->name) != nullptr) {
        main.nodes.Erase(node->name);
        const std::string before = node->name.substr(0, mark->begin);
        std::string name = before;
        if (node->kind != GraphNode::Kind::kModule) {
          name = WithRank(before, Cat(mark->rank));
        } else if (IsLayer(before)) {
          if (node->layer) layer = Cat(*node->layer);
          name = layer.empty() ? before : WithLayer(before, layer);
        }
        Rename(*node, before, std::move(name));
        main.nodes.Put(node->name, node);
      }
      for (Node* child : *node->children) waiting.emplace_back(child, layer);
    }
  }

  // Layers directly below the root, of which each rank has others.
  static void AddLayersOfRoots(Tree& main, const Trees& group) {
    std::vector<Node*>& children = *main.root->children;
    if (std::none_of(children.begin(), children.end(), [](const Node* node) { return IsLayer(node->name); })) return;
    absl::flat_hash_set<std::string> names;
    int layer = -1;
    for (const Node* node : children) {
      names.insert(node->name);
      if (!MarkOf(node->name) && IsLayer(node->name)) ++layer;
    }
    std::vector<Node*> added;
    for (size_t i = 1; i < group.size(); ++i) {
      for (Node* node : *group[i]->root->children) {
        if (!names.contains(node->name) && !node->name.starts_with(StepGraph::kCollection)) added.push_back(node);
      }
    }
    for (Node* node : added) {
      MarkAll(*node, node->rank);
      AddTo(main, *node);
    }
    std::stable_sort(added.begin(), added.end(), [](const Node* a, const Node* b) {
      const Mark one = *MarkOf(a->name);
      const Mark two = *MarkOf(b->name);
      return std::pair(one.rank, one.position) < std::pair(two.rank, two.position);
    });
    for (Node* node : added) {
      node->parent = main.root;
      children.push_back(node);
      if (IsLayer(node->name)) node->layer = ++layer;
      NameByLayer(main, *node);
    }
  }

  // --- The result.

  static std::unique_ptr<MergedStep> Build(const Tree& tree) {
    std::unique_ptr<MergedStep> step(new MergedStep(tree.rank));
    StepTable& table = step->table_;
    table.framework = tree.table->framework;
    table.task = tree.table->task;
    table.level = tree.table->level;
    table.mode = tree.table->mode;
    std::map<std::pair<const StepTable*, int32_t>, int32_t> stacks;
    absl::flat_hash_set<std::string_view> taken;
    std::vector<GraphNode> nodes;
    const auto add = [&](const Node& node, int32_t parent) {
      GraphNode& made = nodes.emplace_back();
      made.name = table.arena.Add(node.name);
      made.kind = node.kind;
      made.parent = parent;
      made.micro_step = node.micro_step;
      if (node.stack >= 0) {
        const auto [known, is_new] =
            stacks.try_emplace({node.table, node.stack}, static_cast<int32_t>(table.stacks.size()));
        if (is_new) table.stacks.push_back(node.table->stacks[static_cast<size_t>(node.stack)]);
        made.stack = known->second;
      }
      if (!node.inputs.empty() || !node.outputs.empty()) {
        made.entry = static_cast<int32_t>(table.entries.size());
        AddEntry(node, made, table);
      }
      step->notes_.push_back(node.notes);
      taken.insert(made.name);
    };
    add(*tree.root, -1);
    std::vector<std::pair<const Node*, int32_t>> waiting = {{tree.root, 0}};
    while (!waiting.empty()) {
      const auto [node, number] = waiting.back();
      waiting.pop_back();
      for (const Node* child : *node->children) {
        if (taken.contains(child->name)) continue;
        const auto child_number = static_cast<int32_t>(nodes.size());
        nodes[static_cast<size_t>(number)].children.push_back(child_number);
        add(*child, number);
        waiting.emplace_back(child, child_number);
      }
    }
    step->graph_.emplace(StepGraph::Of(std::move(nodes), tree.micro_steps));
    return step;
  }

  static void AddEntry(const Node& node, const GraphNode& made, StepTable& table) {
    Entry entry;
    entry.name = made.name;
    entry.first_row = static_cast<uint32_t>(table.rows.size());
    entry.stack = made.stack;
    for (const std::vector<Value>* values : {&node.inputs, &node.outputs}) {
      for (const Value& value : *values) {
        Row row = value.row;
        row.ForgetEdge();
        row.name = table.arena.Add(value.name);
        row.dtype = table.Intern(value.table->text(row.dtype));
        row.shape = table.Intern(value.table->text(row.shape));
        if (row.extended >= 0) {
          table.extended.push_back(value.table->extended[static_cast<size_t>(row.extended)]);
          row.extended = static_cast<int32_t>(table.extended.size()) - 1;
        }
        table.rows.push_back(row);
      }
    }
    entry.rows = static_cast<uint32_t>(table.rows.size()) - entry.first_row;
    table.entries.push_back(entry);
  }

  const ParallelLayout layout_;
  std::deque<Node> nodes_;
  std::deque<Tree> trees_;
};

absl::StatusOr<std::vector<std::unique_ptr<MergedStep>>> MergeRanks(const std::vector<RankGraph>& ranks,
                                                                    const ParallelLayout& layout) {
  if (absl::Status status = CheckLayout(layout); !status.ok()) return status;
  if (ranks.size() != layout.ranks) {
    return absl::InvalidArgumentError(Cat("the layout is of ", layout.ranks, " ranks, and there are ", ranks.size()));
  }
  return RankMerge(ranks, layout).Run();
}

}  // namespace msprobe::server
