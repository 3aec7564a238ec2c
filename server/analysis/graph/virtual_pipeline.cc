#include "server/analysis/graph/virtual_pipeline.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/format/cat.h"

namespace msprobe::server::merge {
namespace {

// The place of the chunk's number ("1" of "Module.1.decoder.Block.forward.0") in a name; empty: it has none.
std::string_view ChunkNumber(std::string_view name) {
  const size_t dot = name.find('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view number = name.substr(dot + 1, name.find('.', dot + 1) - dot - 1);
  return number.find_first_not_of("0123456789") == std::string_view::npos ? number : std::string_view();
}

bool IsInFirst(const Node& node) { return ChunkNumber(node.name) == "0"; }

std::string WithChunk(std::string name, uint32_t chunk) {
  const std::string_view number = ChunkNumber(name);
  if (number.empty()) return name;
  return name.replace(static_cast<size_t>(number.data() - name.data()), number.size(), Cat(chunk));
}

bool IsLayerOfPipeline(const Node& node) { return node.other_layer || node.layer.has_value(); }

bool HoldsLayers(const Node& node) {
  return std::any_of(node.children->begin(), node.children->end(), [](const Node* child) {
    return child->kind == GraphNode::Kind::kModule && (IsLayerOfPipeline(*child) || HoldsLayers(*child));
  });
}

// Names a module of another chunk, and those in it, as the first chunk's; the first number of a layer becomes `layer`.
void NameInFirst(Tree& main, Node& node, const std::string& layer) {
  if (node.kind != GraphNode::Kind::kModule) return;
  const std::string before = node.name;
  std::string name = before;
  if (const auto places = LayerNumbers(name); !layer.empty() && !places.empty()) {
    name.replace(places[0].first, places[0].second - places[0].first, layer);
  }
  main.nodes.Erase(before);
  Rename(node, before, WithChunk(std::move(name), 0));
  main.nodes.Put(node.name, &node);
  for (Node* child : *node.children) NameInFirst(main, *child, layer);
}

void NumberThrough(Tree& main, const Node& node, bool forward) {
  std::vector<Node*> by_time = *node.children;
  if (!forward) std::reverse(by_time.begin(), by_time.end());
  int layer = -1;
  for (Node* child : by_time) {
    const bool is_layer = IsLayer(child->name);
    if (is_layer) ++layer;
    if (!IsInFirst(*child)) NameInFirst(main, *child, is_layer ? Cat(layer) : "");
  }
}

// Brings to a module what the same module of another chunk has beyond it.
void TakeOver(const Tree& main, Node& node, const Node& other, bool forward) {
  std::vector<Node*> taken;
  for (Node* child : *other.children) {
    const bool is_shared = child->kind == GraphNode::Kind::kModule && !IsLayerOfPipeline(*child) &&
                           main.nodes.Find(WithChunk(child->name, 0)) != nullptr;
    if (is_shared) continue;
    child->parent = &node;
    taken.push_back(child);
  }
  std::vector<Node*>& children = *node.children;
  children.insert(forward ? children.end() : children.begin(), taken.begin(), taken.end());
}

void Join(Tree& main, Node& node, uint32_t chunks) {
  const bool forward = IsForward(node.name);
  if (const Node* const last = main.nodes.Find(WithChunk(node.name, chunks - 1))) {
    const auto values = forward ? &Node::outputs : &Node::inputs;
    node.*values = last->*values;
    for (Value& value : node.*values) value.name = Replaced(value.name, last->name, node.name);
  }
  const std::vector<Node*> own = *node.children;
  if (HoldsLayers(node)) {
    for (uint32_t chunk = 1; chunk < chunks; ++chunk) {
      const Node* const other = main.nodes.Find(WithChunk(node.name, chunk));
      if (other != nullptr) TakeOver(main, node, *other, forward);
    }
    NumberThrough(main, node, forward);
  }
  for (Node* child : own) {
    if (child->kind == GraphNode::Kind::kModule && !IsLayerOfPipeline(*child)) Join(main, *child, chunks);
  }
}

}  // namespace

void JoinChunks(Tree& main, uint32_t chunks) {
  for (Node* node : std::vector<Node*>(*main.root->children)) {
    if (node->kind != GraphNode::Kind::kModule || !IsInFirst(*node) || !HoldsLayers(*node)) continue;
    std::vector<Node*> joined;
    for (uint32_t chunk = 1; chunk < chunks; ++chunk) {
      if (Node* const other = main.nodes.Find(WithChunk(node->name, chunk))) joined.push_back(other);
    }
    Join(main, *node, chunks);
    std::erase_if(*main.root->children,
                  [&](Node* child) { return std::find(joined.begin(), joined.end(), child) != joined.end(); });
  }
}

}  // namespace msprobe::server::merge
