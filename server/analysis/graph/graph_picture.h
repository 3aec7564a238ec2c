#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <vector>

#include "server/analysis/graph/call_edges.h"
#include "server/analysis/graph/layered_layout.h"
#include "server/analysis/graph/step_graph.h"

namespace msprobe::server {

// A graph of calls with some of its modules open: a closed module is a box, an open one a box around its calls, which
// are laid out in layers. The root is always open and has no box. Lengths are CSS pixels; x goes right, y down.
// Constant once made; threads: any. Borrows nothing.
class GraphPicture {
 public:
  struct Box {
    int32_t node = 0;
    float x = 0, y = 0, wide = 0, high = 0;
    bool open = false;
  };
  // An edge between two boxes of one module; its bends are between the lower side of `from` and the upper one of `to`.
  struct Line {
    int32_t from = 0;  // nodes
    int32_t to = 0;
    bool data = false;
    uint32_t first_bend = 0, bends = 0;
    LayeredLayout::Point begin, end;
  };
  struct Window {
    float x = 0, y = 0, wide = 0, high = 0;
    bool Meets(float left, float top, float right, float bottom) const {
      return left <= x + wide && right >= x && top <= y + high && bottom >= y;
    }
  };

  static constexpr float kBoxWide = 212, kBoxHigh = 40;  // of a closed box
  static constexpr float kHead = 26, kEdge = 12;         // inside an open box: above its calls, and around them

  // open: nodes with children, whether or not they are visible. Work grows with the visible nodes.
  GraphPicture(const StepGraph& graph, const CallEdges& edges, const std::set<int32_t>& open);

  // In order of execution: a module, then what it holds.
  const std::vector<Box>& boxes() const { return boxes_; }
  const std::vector<Line>& lines() const { return lines_; }
  std::span<const LayeredLayout::Point> BendsOf(const Line& line) const {
    return std::span(bends_).subspan(line.first_bend, line.bends);
  }
  LayeredLayout::Size size() const { return size_; }
  // Null: it is not visible.
  const Box* Find(int32_t node) const;

  // Indexes of the boxes and lines that a window shows, in their order.
  std::vector<uint32_t> BoxesIn(const Window& window) const;
  std::vector<uint32_t> LinesIn(const Window& window) const;

 private:
  std::vector<Box> boxes_;
  std::vector<Line> lines_;
  std::vector<LayeredLayout::Point> bends_;
  std::vector<std::pair<int32_t, uint32_t>> box_of_;  // node and box, by node
  LayeredLayout::Size size_;
};

}  // namespace msprobe::server
