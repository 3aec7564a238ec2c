#include "server/web/open_modules.h"

#include <queue>
#include <tuple>
#include <utility>
#include <vector>

namespace msprobe::server {
namespace {

constexpr size_t kFewAtFirst = 8, kManyAtFirst = 60;  // boxes that a graph begins with, if it can
constexpr size_t kMostAtFirst = 1000;

}  // namespace

void OpenAround(const StepGraph& graph, int32_t node, std::set<int32_t>& open) {
  int32_t around = graph.node(node).parent;
  for (; around > 0 && open.size() < kMaxOpen; around = graph.node(around).parent) open.insert(around);
}

std::set<int32_t> OpenAtFirst(const ModelGraph& model) {
  const StepGraph& graph = model.graph();
  std::set<int32_t> open;
  if (model.first() >= 0) OpenAround(graph, model.first(), open);
  std::vector<int32_t> level = graph.node(0).children;
  size_t boxes = level.size();
  while (!level.empty()) {
    std::vector<int32_t> next;
    for (const int32_t node : level) {
      next.insert(next.end(), graph.node(node).children.begin(), graph.node(node).children.end());
    }
    boxes += next.size();
    if (boxes > (level.size() < kFewAtFirst ? kMostAtFirst : kManyAtFirst)) break;
    for (const int32_t node : level) {
      if (!graph.node(node).children.empty()) open.insert(node);
    }
    level = std::move(next);
  }
  return open;
}

void OpenMore(const ModelGraph& model, size_t boxes, std::set<int32_t>& open) {
  struct Closed {
    int32_t node, depth;
    ModelGraph::Mark mark;
    bool operator<(const Closed& other) const {  // is less worth being opened
      return std::tuple(mark, -depth, -node) < std::tuple(other.mark, -other.depth, -other.node);
    }
  };
  const StepGraph& graph = model.graph();
  std::priority_queue<Closed> closed;
  std::vector<std::pair<int32_t, int32_t>> visible = {{0, 0}};  // open nodes and their depths
  size_t shown = 0;
  const auto look_into = [&] {
    while (!visible.empty()) {
      const auto [node, depth] = visible.back();
      visible.pop_back();
      shown += graph.node(node).children.size();
      for (const int32_t child : graph.node(node).children) {
        if (graph.node(child).children.empty()) continue;
        if (open.contains(child)) {
          visible.emplace_back(child, depth + 1);
        } else {
          closed.push({child, depth + 1, model.MarkOf(child)});
        }
      }
    }
  };
  for (look_into(); !closed.empty(); look_into()) {
    const Closed next = closed.top();
    closed.pop();
    if (shown + graph.node(next.node).children.size() > boxes) continue;
    open.insert(next.node);
    visible.emplace_back(next.node, next.depth);
  }
}

}  // namespace msprobe::server
