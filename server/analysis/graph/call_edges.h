#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "server/analysis/graph/step_graph.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// A tensor that one record made and another one takes. Indexes of StepTable.entries.
struct TensorFlow {
  int32_t producer = -1;
  int32_t consumer = -1;
};

// What a table's rows say of their producers; empty where nothing captured edges.
std::vector<TensorFlow> FlowsOf(const StepTable& table);

// The edges between the calls directly inside of each module. Two calls are joined
//   - by data: a record in one made a tensor that a record in the other takes;
//   - by order: nothing that the call takes is known to be made beside it, so it follows the call before it.
// Constant once made; threads: any.
class CallEdges {
 public:
  struct Edge {
    uint32_t from = 0;  // of GraphNode.children of the module
    uint32_t to = 0;
    bool data = false;
    friend auto operator<=>(const Edge&, const Edge&) = default;  // NOLINT(modernize-use-nullptr): it has no pointer
  };

  // Without flows all edges are those of order.
  CallEdges(const StepGraph& graph, std::span<const TensorFlow> flows);

  // Of the calls inside of a node of the graph, sorted.
  std::span<const Edge> In(int32_t node) const {
    const auto at = static_cast<size_t>(node);
    return std::span(edges_).subspan(first_[at], first_[at + 1] - first_[at]);
  }
  // Whether any edge is known by data.
  bool has_data() const { return has_data_; }

 private:
  std::vector<Edge> edges_;
  std::vector<size_t> first_;  // by node; one more at the end
  bool has_data_ = false;
};

}  // namespace msprobe::server
