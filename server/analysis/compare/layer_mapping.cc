// Partners of rows by the places of their modules in the tree of modules.

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "server/analysis/compare/name_mapping.h"
#include "server/format/cat.h"
#include "server/format/storage/record_pass.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kTopLayer = "TopLayer";

std::vector<std::string_view> Split(std::string_view text, char separator = '.') {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  for (size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator, begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::string Join(const std::vector<std::string_view>& parts, size_t begin, size_t end) {
  std::string text;
  for (size_t i = begin; i < end; ++i) text += Cat(i == begin ? "" : ".", parts[i]);
  return text;
}

bool HasAny(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

bool IsLayer(std::string_view type) { return type == "Cell" || type == "Module"; }

// The function of the framework through which a call was made: of the lines of the framework before the user's own,
// the last one. Innermost first.
std::string FrameFunction(const std::vector<std::string>& lines) {
  const std::string* frame = nullptr;
  for (const std::string& line : lines) {
    const std::string_view file = Split(line, ',')[0];
    if (!HasAny(file, {"site-packages/torch", "package/torch", "site-packages/mindspore", "package/mindspore"})) break;
    frame = &line;
  }
  if (frame == nullptr) return {};
  const std::vector<std::string_view> parts = Split(*frame, ',');
  if (parts.size() < 3 || HasAny(parts[0], {"msprobe", "MindSpeed"}) || HasAny(parts[2], {"construct", "__call__"})) {
    return {};
  }
  const std::vector<std::string> words = absl::StrSplit(AbslView(parts[2]), ' ', absl::SkipEmpty());
  return words.size() < 2 ? std::string() : words[1];
}

// Where one record stands: "Module.model.layers.0.mlp", its class or API, and what it is of.
struct Place {
  std::string scope;
  std::string type;
  std::string state;
};

std::string LayerScope(const std::vector<std::string_view>& parts, bool gradient, std::string_view parent) {
  if (gradient) return Join(parts, 0, parts.size() < 3 ? 0 : parts.size() - 3);
  if (IsLayer(parts[0])) {
    // Without the module's own name: that stands last in the scope.
    if (parts.size() < 5) return std::string(kTopLayer);
    return Join(parts, 0, parts.size() - 4);
  }
  if (parent.empty()) return std::string(kTopLayer);
  const std::vector<std::string_view> around = Split(parent);
  const std::string scope = Join(around, 0, around.size() < 3 ? 0 : around.size() - 3);
  return scope.empty() ? std::string(kTopLayer) : scope;
}

class Places {
 public:
  explicit Places(const StepTable& table) : table_(table) {
    absl::flat_hash_map<std::string_view, size_t> by_name;
    for (size_t i = 0; i < table.entries.size(); ++i) {
      places_.push_back(PlaceOf(table.entries[i]));
      by_name.emplace(table.entries[i].name, i);
    }
    // Backward calls have no stack of their own: they stand where the forward call does.
    for (size_t i = 0; i < places_.size(); ++i) {
      std::vector<std::string_view> parts = Split(WithoutPass(table.entries[i].name));
      bool backward = false;
      for (size_t part = parts.size() < 2 ? 0 : parts.size() - 2; part < parts.size(); ++part) {
        if (parts[part] != "backward") continue;
        parts[part] = "forward";
        backward = true;
      }
      const auto forward = by_name.find(Join(parts, 0, parts.size()));
      if (backward && forward != by_name.end()) places_[i].scope = places_[forward->second].scope;
    }
  }

  const Place& operator[](size_t entry) const { return places_[entry]; }
  size_t size() const { return places_.size(); }

 private:
  Place PlaceOf(const Entry& entry) const {
    const std::vector<std::string_view> parts = Split(entry.name);
    Place place;
    const size_t size = parts.size();
    if (size < 4 && !(size >= 3 && parts.back() == "parameters_grad")) {
      place.scope = Cat(kTopLayer, ".", entry.name);
      return place;
    }
    const bool bare_gradient = parts.back() == "parameters_grad";
    const bool gradient = bare_gradient || parts[size - 2] == "parameters_grad";
    std::string_view name;
    if (gradient) {
      const size_t back = bare_gradient ? 0 : 1;
      name = size >= 3 + back ? parts[size - 3 - back] : "";
      place.type = size >= 2 + back ? parts[size - 2 - back] : "";
      place.state = "parameters_grad";
    } else {
      place.type = parts[size - 3];
      const bool layer = IsLayer(parts[0]);
      name = layer ? parts[size - 4] : std::string_view(place.type);
      place.state = layer ? parts[size - 2] : parts.back();
    }
    place.scope = LayerScope(parts, gradient, entry.parent);
    if (!gradient && !IsLayer(parts[0]) && parts[0] != "Primitive" && parts[0] != "Jit" && entry.stack >= 0) {
      const std::string function = FrameFunction(table_.stacks[static_cast<size_t>(entry.stack)]);
      if (!function.empty()) place.scope += Cat(".", function);
    }
    place.scope += Cat(".", name);
    return place;
  }

  const StepTable& table_;
  std::vector<Place> places_;
};

// Modules and the records that stand at each.
struct Tree {
  std::string type;
  absl::flat_hash_map<std::string, std::unique_ptr<Tree>> children;
  absl::flat_hash_map<std::string, std::vector<size_t>> records;  // by state

  void Insert(const Place& place, size_t entry) {
    Tree* node = this;
    const std::vector<std::string_view> parts = Split(place.scope);
    for (size_t i = 1; i < parts.size(); ++i) {
      std::unique_ptr<Tree>& child = node->children[std::string(parts[i])];
      if (child == nullptr) {
        child = std::make_unique<Tree>();
        child->type = parts[i];
      }
      node = child.get();
    }
    node->records[place.state].push_back(entry);
    node->type = place.type;
  }

  const Tree* Child(std::string_view name) const {
    const auto found = children.find(std::string(name));
    return found == children.end() ? nullptr : found->second.get();
  }
};

// The rules of one class, longest source first.
struct Renaming {
  std::vector<std::string_view> from;
  std::string to;
};
using Renamings = absl::flat_hash_map<std::string, std::vector<Renaming>>;

Renamings RenamingsOf(const std::vector<std::pair<std::string, NameMapping::Names>>& layers) {
  Renamings renamings;
  for (const auto& [type, names] : layers) {
    std::vector<Renaming>& of = renamings[type == "Cell" ? std::string(kTopLayer) : type];
    for (const auto& [from, to] : names) of.push_back({Split(from), to.substr(0, to.find('('))});
    std::stable_sort(of.begin(), of.end(),
                     [](const Renaming& a, const Renaming& b) { return a.from.size() > b.from.size(); });
  }
  return renamings;
}

std::string RenamedScope(const Tree& root, const Place& place, const Renamings& renamings, const Tree*& node) {
  std::string scope(kTopLayer);
  const std::vector<std::string_view> parts = Split(place.scope);
  node = &root;
  for (size_t i = 1; i < parts.size() && node != nullptr;) {
    size_t step = 1;
    std::string to(parts[i]);
    if (const auto rules = renamings.find(node->type); rules != renamings.end()) {
      for (const Renaming& rule : rules->second) {
        if (i + rule.from.size() > parts.size() ||
            !std::equal(rule.from.begin(), rule.from.end(), parts.begin() + static_cast<ptrdiff_t>(i))) {
          continue;
        }
        step = rule.from.size();
        to = rule.to;
        break;
      }
    }
    scope += Cat(".", to);
    for (size_t end = i + step; i < end && node != nullptr; ++i) node = node->Child(parts[i]);
  }
  return scope;
}

const size_t* PartnerOf(const Tree& target, const Tree& golden, const Place& place, size_t entry,
                        const Renamings& renamings) {
  const Tree* node = nullptr;
  const std::string scope = RenamedScope(target, place, renamings, node);
  if (node == nullptr) return nullptr;
  const std::vector<size_t>& siblings = node->records.at(place.state);
  const auto index = static_cast<size_t>(std::find(siblings.begin(), siblings.end(), entry) - siblings.begin());
  const std::vector<std::string_view> parts = Split(scope);
  const Tree* other = &golden;
  for (size_t i = 1; i < parts.size() && other != nullptr; ++i) other = other->Child(parts[i]);
  if (other == nullptr) return nullptr;
  const auto found = other->records.find(place.state);
  if (found == other->records.end() || index >= found->second.size()) return nullptr;
  return &found->second[index];
}

}  // namespace

NameMapping::Names RowsOfLayers(const StepTable& target, const StepTable& golden,
                                const std::vector<std::pair<std::string, NameMapping::Names>>& layers) {
  const Places ours(target);
  const Places theirs(golden);
  Tree target_tree;
  Tree golden_tree;
  target_tree.type = golden_tree.type = kTopLayer;
  for (size_t i = 0; i < ours.size(); ++i) target_tree.Insert(ours[i], i);
  for (size_t i = 0; i < theirs.size(); ++i) golden_tree.Insert(theirs[i], i);
  const Renamings renamings = RenamingsOf(layers);
  NameMapping::Names rows;
  for (size_t i = 0; i < ours.size(); ++i) {
    const Entry& entry = target.entries[i];
    const size_t* const partner = PartnerOf(target_tree, golden_tree, ours[i], i, renamings);
    const Entry* const other = partner == nullptr ? nullptr : &golden.entries[*partner];
    absl::flat_hash_map<std::string_view, std::string_view> by_suffix;
    for (uint32_t k = 0; other != nullptr && k < other->rows; ++k) {
      const std::string_view name = golden.rows[other->first_row + k].name;
      by_suffix.emplace(name.substr(std::min(other->name.size(), name.size())), name);
    }
    for (uint32_t k = entry.first_row; k < entry.first_row + entry.rows; ++k) {
      const std::string_view name = target.rows[k].name;
      const auto found = by_suffix.find(name.substr(std::min(entry.name.size(), name.size())));
      rows.emplace_back(std::string(name), found == by_suffix.end() ? "N/A" : std::string(found->second));
    }
  }
  return rows;
}

}  // namespace msprobe::server
