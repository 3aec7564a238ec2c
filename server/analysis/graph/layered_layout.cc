#include "server/analysis/graph/layered_layout.h"

#include <algorithm>
#include <numeric>

namespace msprobe::server {
namespace {

constexpr uint32_t kLongest = 6;  // layers that an edge crosses between vertices; a longer one goes around
constexpr int kSweeps = 4;        // down and up, twice
constexpr uint32_t kLanes = 4;    // of edges that go around, side by side

// A vertex, or the place where an edge crosses a layer.
struct Slot {
  float wide = 0;
  float x = 0;  // its middle
  uint32_t layer = 0;
  std::vector<uint32_t> above, below;  // slots in the next layers
};

class Layout {
 public:
  Layout(std::span<const LayeredLayout::Size> vertices, std::span<const LayeredLayout::Edge> edges,
         const LayeredLayout::Spacing& spacing)
      : vertices_(vertices), edges_(edges), spacing_(spacing) {}

  LayeredLayout Make() {
    AssignLayers();
    Divide();
    if (widest_ > 1) {
      for (int sweep = 0; sweep < kSweeps; ++sweep) ForEachLayer(sweep % 2 == 0, &Layout::Sort);
    }
    for (std::vector<uint32_t>& layer : layers_) Pack(layer);
    if (widest_ > 1) {
      for (int sweep = 0; sweep < kSweeps; ++sweep) ForEachLayer(sweep % 2 == 0, &Layout::Straighten);
    }
    return Finish();
  }

 private:
  bool IsDown(const LayeredLayout::Edge& edge) const { return edge.from < edge.to; }

  void AssignLayers() {
    std::vector<uint32_t> order(edges_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [this](uint32_t a, uint32_t b) { return edges_[a].from < edges_[b].from; });
    layer_of_.assign(vertices_.size(), 0);
    for (const uint32_t number : order) {
      const LayeredLayout::Edge& edge = edges_[number];
      if (IsDown(edge)) layer_of_[edge.to] = std::max(layer_of_[edge.to], layer_of_[edge.from] + 1);
    }
  }

  void Divide() {
    uint32_t layers = 0;
    slots_.resize(vertices_.size());
    for (uint32_t i = 0; i < vertices_.size(); ++i) {
      slots_[i].wide = vertices_[i].wide;
      slots_[i].layer = layer_of_[i];
      layers = std::max(layers, layer_of_[i] + 1);
    }
    crossed_.resize(edges_.size());
    for (size_t i = 0; i < edges_.size(); ++i) Cross(i);
    layers_.resize(layers);
    for (uint32_t slot = 0; slot < slots_.size(); ++slot) layers_[slots_[slot].layer].push_back(slot);
    for (const std::vector<uint32_t>& layer : layers_) widest_ = std::max(widest_, layer.size());
  }

  void Cross(size_t number) {
    const LayeredLayout::Edge& edge = edges_[number];
    if (!IsDown(edge)) return;
    const uint32_t first = layer_of_[edge.from], last = layer_of_[edge.to];
    if (last - first > kLongest) {
      around_.push_back(static_cast<uint32_t>(number));
      return;
    }
    uint32_t at = edge.from;
    for (uint32_t layer = first + 1; layer < last; ++layer) {
      const auto next = static_cast<uint32_t>(slots_.size());
      Slot slot;
      slot.layer = layer;
      slots_.push_back(std::move(slot));
      crossed_[number].push_back(next);
      Join(at, next);
      at = next;
    }
    Join(at, edge.to);
  }

  void Join(uint32_t above, uint32_t below) {
    slots_[above].below.push_back(below);
    slots_[below].above.push_back(above);
  }

  void ForEachLayer(bool down, void (Layout::*work)(std::vector<uint32_t>& layer, bool down)) {
    for (size_t i = 0; i < layers_.size(); ++i) (this->*work)(layers_[down ? i : layers_.size() - 1 - i], down);
  }

  const std::vector<uint32_t>& Neighbours(uint32_t slot, bool down) const {
    return down ? slots_[slot].above : slots_[slot].below;
  }

  // By the mean place of the neighbours in the layer before; a slot without any stays where it is.
  void Sort(std::vector<uint32_t>& layer, bool down) {
    if (layer.size() > 1) {
      std::vector<std::pair<float, uint32_t>> keys;
      for (const uint32_t own : layer) {
        const std::vector<uint32_t>& near = Neighbours(own, down);
        float sum = 0;
        for (const uint32_t slot : near) sum += slots_[slot].x;
        keys.emplace_back(near.empty() ? slots_[own].x : sum / static_cast<float>(near.size()), own);
      }
      std::stable_sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
      for (size_t i = 0; i < layer.size(); ++i) layer[i] = keys[i].second;
    }
    Pack(layer);
  }

  // Side by side, around 0.
  void Pack(const std::vector<uint32_t>& layer) {
    float x = 0;
    for (size_t i = 0; i < layer.size(); ++i) {
      if (i > 0) x += Distance(layer[i - 1], layer[i]);
      slots_[layer[i]].x = x;
    }
    for (const uint32_t slot : layer) slots_[slot].x -= x / 2;
  }

  float Distance(uint32_t left, uint32_t right) const {
    return (slots_[left].wide + slots_[right].wide) / 2 + spacing_.beside;
  }

  // Each slot as near as can be to the middle of its neighbours, in the order and at the distances of the layer: least
  // squares, by pooling adjacent violators.
  void Straighten(std::vector<uint32_t>& layer, bool down) {
    struct Pool {
      float sum = 0;
      uint32_t slots = 0;
      float mean() const { return sum / static_cast<float>(slots); }
    };
    std::vector<Pool> pools;
    float offset = 0;
    for (size_t i = 0; i < layer.size(); ++i) {
      if (i > 0) offset += Distance(layer[i - 1], layer[i]);
      const std::vector<uint32_t>& near = Neighbours(layer[i], down);
      float wanted = 0;
      for (const uint32_t slot : near) wanted += slots_[slot].x;
      wanted = near.empty() ? slots_[layer[i]].x : wanted / static_cast<float>(near.size());
      Pool pool{wanted - offset, 1};
      for (; !pools.empty() && pools.back().mean() > pool.mean(); pools.pop_back()) {
        pool.sum += pools.back().sum;
        pool.slots += pools.back().slots;
      }
      pools.push_back(pool);
    }
    offset = 0;
    size_t i = 0;
    for (const Pool& pool : pools) {
      for (uint32_t of_pool = 0; of_pool < pool.slots; ++of_pool, ++i) {
        if (i > 0) offset += Distance(layer[i - 1], layer[i]);
        slots_[layer[i]].x = pool.mean() + offset;
      }
    }
  }

  LayeredLayout Finish() {
    LayeredLayout made;
    float left = 0, right = 0;
    for (size_t i = 0; i < slots_.size(); ++i) {
      const float half = slots_[i].wide / 2;
      left = i == 0 ? slots_[i].x - half : std::min(left, slots_[i].x - half);
      right = i == 0 ? slots_[i].x + half : std::max(right, slots_[i].x + half);
    }
    std::vector<float> top(layers_.size()), high(layers_.size(), 0);
    for (size_t i = 0; i < vertices_.size(); ++i) high[layer_of_[i]] = std::max(high[layer_of_[i]], vertices_[i].high);
    float y = 0;
    for (size_t i = 0; i < layers_.size(); ++i) {
      top[i] = y;
      y += high[i] + (i + 1 < layers_.size() ? spacing_.between : 0);
    }
    for (size_t i = 0; i < vertices_.size(); ++i) {
      const uint32_t layer = layer_of_[i];
      made.corners.push_back(
          {slots_[i].x - slots_[i].wide / 2 - left, top[layer] + (high[layer] - vertices_[i].high) / 2});
    }
    made.size = {right - left, y};
    std::vector<bool> around(edges_.size(), false);
    for (const uint32_t edge : around_) around[edge] = true;
    uint32_t lane = 0;
    for (size_t i = 0; i < edges_.size(); ++i) {
      made.first_bend.push_back(static_cast<uint32_t>(made.bends.size()));
      if (around[i]) {
        const float x = right - left + spacing_.lane * static_cast<float>(1 + lane++ % kLanes);
        const auto from = layer_of_[edges_[i].from], to = layer_of_[edges_[i].to];
        made.bends.push_back({x, top[from] + high[from] + spacing_.between / 2});
        made.bends.push_back({x, top[to] - spacing_.between / 2});
      }
      for (const uint32_t slot : crossed_[i]) {
        const uint32_t layer = slots_[slot].layer;
        made.bends.push_back({slots_[slot].x - left, top[layer]});
        made.bends.push_back({slots_[slot].x - left, top[layer] + high[layer]});
      }
    }
    made.first_bend.push_back(static_cast<uint32_t>(made.bends.size()));
    if (!around_.empty()) made.size.wide += spacing_.lane * static_cast<float>(std::min(lane, kLanes) + 1);
    return made;
  }

  const std::span<const LayeredLayout::Size> vertices_;
  const std::span<const LayeredLayout::Edge> edges_;
  const LayeredLayout::Spacing& spacing_;
  std::vector<uint32_t> layer_of_;              // by vertex
  std::vector<Slot> slots_;                     // vertices first
  std::vector<std::vector<uint32_t>> crossed_;  // by edge: its slots, downwards
  std::vector<uint32_t> around_;                // edges
  std::vector<std::vector<uint32_t>> layers_;   // slots, from left to right
  size_t widest_ = 0;                           // slots of a layer
};

}  // namespace

LayeredLayout LayOut(std::span<const LayeredLayout::Size> vertices, std::span<const LayeredLayout::Edge> edges,
                     const LayeredLayout::Spacing& spacing) {
  return Layout(vertices, edges, spacing).Make();
}

}  // namespace msprobe::server
