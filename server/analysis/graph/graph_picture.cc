#include "server/analysis/graph/graph_picture.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/graph/step_graph.h"

namespace msprobe::server {
namespace {

constexpr LayeredLayout::Spacing kSpacing;

// An open module, laid out.
struct Inside {
  LayeredLayout layout;
  std::vector<CallEdges::Edge> edges;
  LayeredLayout::Size box;
};

using Insides = absl::flat_hash_map<int32_t, Inside>;  // by node

// Modules that are open, and whose parents are; parents first.
std::vector<int32_t> VisibleOpen(const StepGraph& graph, const std::set<int32_t>& open) {
  std::vector<int32_t> visible = {kRootNode};
  for (size_t i = 0; i < visible.size(); ++i) {
    for (const int32_t child : graph.node(visible[i]).children) {
      if (!graph.node(child).children.empty() && open.contains(child)) visible.push_back(child);
    }
  }
  return visible;
}

Inside LayOutInside(const StepGraph& graph, const CallEdges& edges, const Insides& insides, int32_t node) {
  std::vector<LayeredLayout::Size> sizes;
  for (const int32_t child : graph.node(node).children) {
    const auto inside = insides.find(child);
    sizes.push_back(inside == insides.end() ? LayeredLayout::Size{GraphPicture::kBoxWide, GraphPicture::kBoxHigh}
                                            : inside->second.box);
  }
  Inside made;
  std::vector<LayeredLayout::Edge> drawn;
  for (const CallEdges::Edge& edge : edges.In(node)) {
    made.edges.push_back(edge);
    drawn.push_back({edge.from, edge.to});
  }
  made.layout = LayOut(sizes, drawn, kSpacing);
  made.box = {made.layout.size.wide + 2 * GraphPicture::kEdge,
              made.layout.size.high + GraphPicture::kHead + GraphPicture::kEdge};
  return made;
}

}  // namespace

GraphPicture::GraphPicture(const StepGraph& graph, const CallEdges& edges, const std::set<int32_t>& open) {
  Insides insides;
  const std::vector<int32_t> visible = VisibleOpen(graph, open);
  for (size_t i = visible.size(); i-- > 0;) {
    Inside inside = LayOutInside(graph, edges, insides, visible[i]);
    insides.emplace(visible[i], std::move(inside));
  }
  size_ = {insides.at(kRootNode).layout.size.wide + 2 * kEdge, insides.at(kRootNode).layout.size.high + 2 * kEdge};

  struct Waiting {
    int32_t node = 0;
    Box box;
  };
  std::vector<Waiting> waiting = {{kRootNode, {kRootNode, 0, kEdge - kHead, 0, 0, true}}};
  while (!waiting.empty()) {
    const Waiting at = waiting.back();
    waiting.pop_back();
    if (at.node != kRootNode) boxes_.push_back(at.box);
    if (!at.box.open) continue;
    const Inside& inside = insides.at(at.node);
    const float left = at.box.x + kEdge, top = at.box.y + kHead;
    const std::vector<int32_t>& children = graph.node(at.node).children;
    std::vector<Box> placed;
    for (size_t i = 0; i < children.size(); ++i) {
      const auto deeper = insides.find(children[i]);
      const bool is_open = deeper != insides.end();
      const LayeredLayout::Size size = is_open ? deeper->second.box : LayeredLayout::Size{kBoxWide, kBoxHigh};
      const LayeredLayout::Point corner = inside.layout.corners[i];
      placed.push_back({children[i], left + corner.x, top + corner.y, size.wide, size.high, is_open});
    }
    for (size_t i = 0; i < inside.edges.size(); ++i) {
      const Box& from = placed[inside.edges[i].from];
      const Box& to = placed[inside.edges[i].to];
      Line line{from.node, to.node, inside.edges[i].data, static_cast<uint32_t>(bends_.size()), 0, {}, {}};
      line.begin = {from.x + from.wide / 2, from.y + from.high};
      line.end = {to.x + to.wide / 2, to.y};
      for (const LayeredLayout::Point& bend : inside.layout.BendsOf(i)) bends_.push_back({left + bend.x, top + bend.y});
      line.bends = static_cast<uint32_t>(bends_.size()) - line.first_bend;
      lines_.push_back(line);
    }
    for (size_t i = placed.size(); i-- > 0;) waiting.push_back({placed[i].node, placed[i]});
  }
  box_of_.reserve(boxes_.size());
  for (uint32_t i = 0; i < boxes_.size(); ++i) box_of_.emplace_back(boxes_[i].node, i);
  std::sort(box_of_.begin(), box_of_.end());
}

const GraphPicture::Box* GraphPicture::Find(int32_t node) const {
  const auto found = std::lower_bound(box_of_.begin(), box_of_.end(), std::pair(node, uint32_t{0}));
  return found == box_of_.end() || found->first != node ? nullptr : &boxes_[found->second];
}

std::vector<uint32_t> GraphPicture::BoxesIn(const Window& window) const {
  std::vector<uint32_t> shown;
  for (uint32_t i = 0; i < boxes_.size(); ++i) {
    const Box& box = boxes_[i];
    if (window.Meets(box.x, box.y, box.x + box.wide, box.y + box.high)) shown.push_back(i);
  }
  return shown;
}

std::vector<uint32_t> GraphPicture::LinesIn(const Window& window) const {
  std::vector<uint32_t> shown;
  for (uint32_t i = 0; i < lines_.size(); ++i) {
    const Line& line = lines_[i];
    float left = std::min(line.begin.x, line.end.x), right = std::max(line.begin.x, line.end.x);
    for (const LayeredLayout::Point& bend : BendsOf(line)) {
      left = std::min(left, bend.x);
      right = std::max(right, bend.x);
    }
    const auto [top, bottom] = std::minmax(line.begin.y, line.end.y);
    if (window.Meets(left, top, right, bottom)) shown.push_back(i);
  }
  return shown;
}

}  // namespace msprobe::server
