// Partners of rows by the places of their modules in the tree of modules.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/compare/name_mapping.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/analysis/module_tree/module_tree.h"
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
    std::vector<Renaming>& of = renamings[type == "Cell" ? std::string(ModuleTree::kTopType) : type];
    for (const auto& [from, to] : names) of.push_back({PartsOfName(from), to.substr(0, to.find('('))});
    std::stable_sort(of.begin(), of.end(),
                     [](const Renaming& a, const Renaming& b) { return a.from.size() > b.from.size(); });
  }
  return renamings;
}

// The records of one side, by module and state.
class PlacedRecords {
 public:
  explicit PlacedRecords(const StepTable& table) : places_(PlacesOfRecords(table)) {
    for (size_t i = 0; i < places_.size(); ++i) {
      const uint32_t module = tree_.Add(places_[i].path());
      tree_.SetType(module, places_[i].type);
      records_[{module, places_[i].state}].push_back(i);
    }
  }

  const std::vector<RecordPlace>& places() const { return places_; }
  const ModuleTree& tree() const { return tree_; }
  // In order of execution. Null: there are none.
  const std::vector<size_t>* At(std::string_view path, std::string_view state) const {
    const std::optional<uint32_t> module = tree_.Find(path);
    if (!module) return nullptr;
    const auto found = records_.find({*module, state});
    return found == records_.end() ? nullptr : &found->second;
  }

 private:
  const std::vector<RecordPlace> places_;
  ModuleTree tree_;
  absl::flat_hash_map<std::pair<uint32_t, std::string_view>, std::vector<size_t>> records_;
};

// The path of a place on the other side.
std::string RenamedPath(const ModuleTree& tree, std::string_view path, const Renamings& renamings) {
  std::string renamed;
  const std::vector<std::string_view> parts = PartsOfName(path);
  uint32_t module = ModuleTree::kTop;
  for (size_t i = 0; i < parts.size();) {
    size_t step = 1;
    std::string to(parts[i]);
    if (const auto rules = renamings.find(std::string(tree.modules()[module].type)); rules != renamings.end()) {
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
    renamed += Cat(i == 0 ? "" : ".", to);
    for (size_t end = i + step; i < end; ++i) module = tree.FindChild(module, parts[i]).value_or(ModuleTree::kTop);
  }
  return renamed;
}

}  // namespace

LayerMatch EntriesOfLayers(const StepTable& target, const StepTable& golden,
                           const std::vector<std::pair<std::string, NameMapping::Names>>& layers) {
  const PlacedRecords ours(target);
  const PlacedRecords theirs(golden);
  const Renamings renamings = RenamingsOf(layers);
  LayerMatch match;
  for (size_t i = 0; i < target.entries.size(); ++i) {
    const RecordPlace& place = ours.places()[i];
    const std::string_view path = place.path();
    const std::string renamed = RenamedPath(ours.tree(), path, renamings);
    match.renamed = match.renamed || renamed != path;
    const std::vector<size_t>& siblings = *ours.At(path, place.state);
    const auto index = static_cast<size_t>(std::find(siblings.begin(), siblings.end(), i) - siblings.begin());
    const std::vector<size_t>* const found = theirs.At(renamed, place.state);
    const bool has_partner = found != nullptr && index < found->size();
    match.golden_of.push_back(has_partner ? static_cast<int32_t>((*found)[index]) : -1);
  }
  return match;
}

}  // namespace msprobe::server
