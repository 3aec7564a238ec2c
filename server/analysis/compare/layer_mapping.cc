// Partners of rows by the places of their modules in the tree of modules.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/compare/name_mapping.h"
#include "server/analysis/module_tree/record_places.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// The rules of one class, longest source first.
struct Renaming {
  std::vector<std::string_view> from;
  std::string to;
};
using Renamings = absl::flat_hash_map<std::string, std::vector<Renaming>>;

Renamings RenamingsOf(const std::vector<std::pair<std::string, NameMapping::Names>>& layers) {
  Renamings renamings;
  for (const auto& [type, names] : layers) {
    std::vector<Renaming>& of = renamings[type == "Cell" ? std::string(PlaceTree::kTop) : type];
    for (const auto& [from, to] : names) of.push_back({PartsOfName(from), to.substr(0, to.find('('))});
    std::stable_sort(of.begin(), of.end(),
                     [](const Renaming& a, const Renaming& b) { return a.from.size() > b.from.size(); });
  }
  return renamings;
}

std::string RenamedScope(const PlaceTree& root, const RecordPlace& place, const Renamings& renamings,
                         const PlaceTree*& node) {
  std::string scope(PlaceTree::kTop);
  const std::vector<std::string_view> parts = PartsOfName(place.scope);
  node = &root;
  for (size_t i = 1; i < parts.size() && node != nullptr;) {
    size_t step = 1;
    std::string to(parts[i]);
    if (const auto rules = renamings.find(node->type()); rules != renamings.end()) {
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

const size_t* PartnerOf(const PlaceTree& target, const PlaceTree& golden, const RecordPlace& place, size_t entry,
                        const Renamings& renamings) {
  const PlaceTree* node = nullptr;
  const std::string scope = RenamedScope(target, place, renamings, node);
  if (node == nullptr) return nullptr;
  const std::vector<size_t>& siblings = *node->Records(place.state);
  const auto index = static_cast<size_t>(std::find(siblings.begin(), siblings.end(), entry) - siblings.begin());
  const std::vector<std::string_view> parts = PartsOfName(scope);
  const PlaceTree* other = &golden;
  for (size_t i = 1; i < parts.size() && other != nullptr; ++i) other = other->Child(parts[i]);
  if (other == nullptr) return nullptr;
  const std::vector<size_t>* const found = other->Records(place.state);
  return found == nullptr || index >= found->size() ? nullptr : &(*found)[index];
}

}  // namespace

NameMapping::Names RowsOfLayers(const StepTable& target, const StepTable& golden,
                                const std::vector<std::pair<std::string, NameMapping::Names>>& layers) {
  const std::vector<RecordPlace> ours = PlacesOfRecords(target);
  const PlaceTree target_tree(ours);
  const PlaceTree golden_tree(PlacesOfRecords(golden));
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
