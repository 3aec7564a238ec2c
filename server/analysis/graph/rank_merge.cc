#include "server/analysis/graph/rank_merge.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "server/analysis/graph/merge_tree.h"
#include "server/analysis/graph/pipeline_merge.h"
#include "server/analysis/graph/rank_groups.h"
#include "server/analysis/graph/tensor_merge.h"
#include "server/analysis/graph/virtual_pipeline.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using namespace merge;  // NOLINT(google-build-using-namespace)

constexpr std::string_view kAllRanks = "Apis_Between_Modules_All_Ranks";

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
      status = ForGroups(TensorGroups(trees_, layout_), [&](const Trees& group) {
        MergeCollections(group);
        results.push_back(MergeTensors(group, {}));
      });
    } else if (layout_.pipeline == size || layout_.tensor == 1) {
      status = ForGroups(PipelineGroups(trees_, layout_), [&](const Trees& group) {
        MergeCollections(group);
        results.push_back(MergeStages(group));
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
  Tree* MergeStages(const Trees& group) {
    Tree* const merged = MergePipeline(group);
    if (layout_.chunks > 1 && group.size() > 1) JoinChunks(*merged, layout_.chunks);
    return merged;
  }

  absl::Status MergeBoth(const Trees& all, Trees& results) {
    const RankGroups pipelines = PipelineGroups(trees_, layout_);
    const RankGroups shares = TensorGroups(trees_, layout_);
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
      Tree* const merged = MergeStages(group);
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
    return absl::InvalidArgumentError(
        Cat("the layout has a rank_size of ", layout.ranks, ", and the number of ranks is ", ranks.size()));
  }
  return RankMerge(ranks, layout).Run();
}

}  // namespace msprobe::server
