#include "server/analysis/graph/call_edges.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace msprobe::server {
namespace {

// Where nodes stand in their trees.
class Places {
 public:
  explicit Places(const StepGraph& graph)
      : graph_(graph), depth_(graph.nodes().size(), 0), among_(graph.nodes().size(), 0) {
    for (size_t i = graph.order().size(); i-- > 0;) {  // parents first
      const int32_t node = graph.order()[i];
      const std::vector<int32_t>& children = graph.node(node).children;
      for (uint32_t child = 0; child < children.size(); ++child) {
        depth_[Index(children[child])] = depth_[Index(node)] + 1;
        among_[Index(children[child])] = child;
      }
    }
  }

  // The innermost module around both, and the calls in it that hold them. -1: one holds the other.
  std::pair<int32_t, CallEdges::Edge> Meeting(int32_t from, int32_t to) const {
    while (from != to && graph_.node(from).parent != graph_.node(to).parent) {
      int32_t& deeper = depth_[Index(from)] >= depth_[Index(to)] ? from : to;
      deeper = graph_.node(deeper).parent;
    }
    if (from == to || graph_.node(from).parent < 0) return {-1, {}};
    return {graph_.node(from).parent, {among_[Index(from)], among_[Index(to)], true}};
  }

 private:
  static size_t Index(int32_t node) { return static_cast<size_t>(node); }

  const StepGraph& graph_;
  std::vector<uint32_t> depth_;
  std::vector<uint32_t> among_;  // by node: which of its parent's children it is
};

}  // namespace

std::vector<TensorFlow> FlowsOf(const StepTable& table) {
  std::vector<TensorFlow> flows;
  for (size_t i = 0; i < table.entries.size(); ++i) {
    const Entry& entry = table.entries[i];
    for (uint32_t row = entry.first_row; row < entry.first_row + entry.rows; ++row) {
      if (table.rows[row].producer < 0) continue;
      const size_t producer = table.EntryOf(static_cast<uint32_t>(table.rows[row].producer));
      flows.push_back({static_cast<int32_t>(producer), static_cast<int32_t>(i)});
    }
  }
  return flows;
}

CallEdges::CallEdges(const StepGraph& graph, std::span<const TensorFlow> flows) {
  std::vector<std::pair<int32_t, Edge>> found;  // by module
  if (!flows.empty()) {
    absl::flat_hash_map<int32_t, int32_t> node_of;  // by entry
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      if (graph.nodes()[i].entry >= 0) node_of.emplace(graph.nodes()[i].entry, static_cast<int32_t>(i));
    }
    const Places places(graph);
    for (const TensorFlow& flow : flows) {
      const auto from = node_of.find(flow.producer), to = node_of.find(flow.consumer);
      if (from == node_of.end() || to == node_of.end()) continue;
      const auto meeting = places.Meeting(from->second, to->second);
      if (meeting.first >= 0) found.push_back(meeting);
    }
    std::sort(found.begin(), found.end());
    found.erase(std::unique(found.begin(), found.end()), found.end());
  }
  has_data_ = !found.empty();
  auto data = found.begin();
  std::vector<bool> fed;
  for (size_t node = 0; node < graph.nodes().size(); ++node) {
    first_.push_back(edges_.size());
    const auto children = static_cast<uint32_t>(graph.nodes()[node].children.size());
    fed.assign(children, false);
    for (; data != found.end() && data->first == static_cast<int32_t>(node); ++data) {
      edges_.push_back(data->second);
      if (data->second.from < data->second.to) fed[data->second.to] = true;
    }
    for (uint32_t child = 1; child < children; ++child) {
      if (!fed[child]) edges_.push_back({child - 1, child, false});
    }
    std::sort(edges_.begin() + static_cast<std::ptrdiff_t>(first_.back()), edges_.end());
  }
  first_.push_back(edges_.size());
}

}  // namespace msprobe::server
