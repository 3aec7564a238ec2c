#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace msprobe::server {

// A picture of a directed graph in layers, after Sugiyama: vertices in rows from top to bottom, edges downwards, few
// crossings, short and straight edges. Lengths are in the unit of the sizes given; x goes right, y down.
//
// Vertices come in order of execution. An edge to an earlier vertex, or to itself, puts nothing into a layer, and is
// drawn from place to place.
struct LayeredLayout {
  struct Size {
    float wide = 0;
    float high = 0;
  };
  struct Point {
    float x = 0;
    float y = 0;
  };
  struct Edge {
    uint32_t from = 0;  // of the vertices
    uint32_t to = 0;
  };
  struct Spacing {
    float beside = 16;   // between vertices of a layer
    float between = 22;  // between layers
    float lane = 10;     // of an edge that passes vertices by
  };

  std::vector<Point> corners;        // left and top, by vertex
  std::vector<Point> bends;          // of all edges, in their order, between the ends of each
  std::vector<uint32_t> first_bend;  // by edge; one more at the end
  Size size;

  std::span<const Point> BendsOf(size_t edge) const {
    return std::span(bends).subspan(first_bend[edge], first_bend[edge + 1] - first_bend[edge]);
  }
};

// O((V + E) log V): an edge that passes more than a few layers by goes around them on the right.
LayeredLayout LayOut(std::span<const LayeredLayout::Size> vertices, std::span<const LayeredLayout::Edge> edges,
                     const LayeredLayout::Spacing& spacing);

}  // namespace msprobe::server
