#include "server/analysis/compare/name_mapping.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// A name that no row of the other side has.
constexpr char kNothing[] = "N/A";

std::string ReplaceFirst(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  if (at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

std::string ReplaceAll(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Where ".forward", ".backward" or ".parameters_grad" of a record begins; its length where there is none.
size_t WayAt(std::string_view record) {
  const std::string dotted = Cat(record, ".");
  return std::min(
      {dotted.find(".forward."), dotted.find(".backward."), dotted.find(".parameters_grad."), record.size()});
}

std::string_view RecordKindOf(std::string_view record) { return record.substr(0, record.find('.')); }

// "Cell.fc1.Dense.forward.0" with the names that a file has for "fc1.Dense".
std::string CellName(std::string_view record, const NameMapping::Names& cells) {
  const size_t begin = record.find('.') + 1;  // npos + 1: there is no kind
  const size_t end = std::max(WayAt(record), begin);
  const std::string cell(record.substr(begin, end - begin));
  std::string renamed = cell;
  bool whole = false;
  for (const auto& [target, golden] : cells) {
    if (target != cell) continue;
    renamed = golden;
    whole = true;
  }
  for (size_t i = 0; !whole && i < cells.size(); ++i) renamed = ReplaceFirst(renamed, cells[i].first, cells[i].second);
  return Cat(record.substr(0, begin), renamed, record.substr(end));
}

// A module's record without the class, which the path of a module does not need: "Module.fc1.forward.0".
std::string PlaceOf(std::string_view record) {
  const size_t way = WayAt(record);
  return Cat(WithoutLastParts(record.substr(0, way), 1), record.substr(way));
}

// One of the two sides.
struct Side {
  const StepTable& table;
  StepNames& names;
};

absl::flat_hash_set<std::string_view> Known(const std::vector<std::string_view>& names) {
  return {names.begin(), names.end()};
}

// Modules that the other side does not have by that name take the one at the same place, whatever its class.
void RenameClasses(Side side, const StepNames& other) {
  const absl::flat_hash_set<std::string_view> known = Known(other.entries);
  absl::flat_hash_map<std::string, std::string_view> at_place;
  for (std::string_view name : other.entries) {
    if (IsModuleKind(RecordKindOf(name))) at_place.emplace(PlaceOf(name), name);
  }
  for (size_t i = 0; i < side.names.entries.size(); ++i) {
    const std::string_view name = side.names.entries[i];
    if (!IsModuleKind(RecordKindOf(name)) || known.contains(name)) continue;
    if (const auto found = at_place.find(PlaceOf(name)); found != at_place.end()) {
      side.names.Rename(side.table.entries[i], i, found->second);
    }
  }
}

// Parameters of MindSpore's that the other side does not have by that name.
void RenameParameters(Side mindspore, const StepNames& other) {
  const absl::flat_hash_set<std::string_view> known = Known(other.rows);
  for (size_t i = 0; i < mindspore.names.rows.size(); ++i) {
    const RowState state = mindspore.table.rows[i].state;
    if (state != RowState::kParameters && state != RowState::kParametersGrad) continue;
    std::string_view& name = mindspore.names.rows[i];
    const size_t last = name.rfind('.') + 1;
    const std::string_view renamed = PyTorchParameter(name.substr(last));
    if (renamed.empty() || known.contains(name)) continue;
    name = mindspore.names.arena.Join({name.substr(0, last), renamed});
  }
}

void RenameCells(Side mindspore) {
  for (size_t i = 0; i < mindspore.names.entries.size(); ++i) {
    const std::string_view name = mindspore.names.entries[i];
    if (RecordKindOf(name) != "Cell") continue;
    mindspore.names.Rename(mindspore.table.entries[i], i, Cat("Module", name.substr(RecordKindOf(name).size())));
  }
}

std::string KnownApi(std::string_view api) {
  const std::string_view kind = RecordKindOf(api);
  const std::string_view rest = api.substr(kind.size());
  if (kind == "Mint") return Cat("Torch", rest);
  if (kind == "MintFunctional") return Cat("Functional", rest);
  const std::string known = PyTorchName(api);
  return known.empty() ? std::string(api) : known;
}

// The PyTorch side's APIs for those of MindSpore. Where that side has no API of the known name, one of the same
// operation and another kind takes its place: both frameworks have many as function and as method.
std::map<std::string, std::string, std::less<>> KnownApis(const StepTable& mindspore, const StepTable& other) {
  constexpr std::string_view kKinds[] = {"Torch", "Functional", "Tensor"};
  constexpr std::string_view kOurs[] = {"Mint", "MintFunctional", "Functional", "Tensor"};
  absl::flat_hash_set<std::string_view> theirs;
  for (const Entry& entry : other.entries) theirs.insert(ApiOf(entry.name));
  std::map<std::string, std::string, std::less<>> known;
  absl::flat_hash_set<std::string> taken;
  for (const Entry& entry : mindspore.entries) {
    const std::string_view api = ApiOf(entry.name);
    const auto [found, added] = known.try_emplace(std::string(api), KnownApi(api));
    if (added) taken.insert(found->second);
  }
  if (!AcrossFrameworks(mindspore, other)) return known;
  for (auto& [api, name] : known) {
    if (theirs.contains(std::string_view(name)) ||
        std::find(std::begin(kOurs), std::end(kOurs), RecordKindOf(api)) == std::end(kOurs)) {
      continue;
    }
    for (std::string_view kind : kKinds) {
      const std::string candidate = Cat(kind, ".", OperationOf(name));
      if (!theirs.contains(std::string_view(candidate)) || !taken.insert(candidate).second) continue;
      name = candidate;
      break;
    }
  }
  return known;
}

// The name of a row of one of the APIs that a file names.
std::string RowOfApi(const Row& row, std::string_view entry, const NameMapping::Api& api) {
  const std::string name = ReplaceFirst(std::string(row.name), api.target, api.golden);
  const std::string renamed_entry = ReplaceFirst(std::string(entry), api.target, api.golden);
  const struct {
    RowState state;
    std::string_view pattern;
    const NameMapping::Names& names;
  } ways[] = {{RowState::kInput, ".input.", api.inputs},
              {RowState::kOutput, ".output.", api.outputs},
              {RowState::kParameters, ".parameters.", api.parameters},
              {RowState::kParametersGrad, ".parameters_grad.", api.parameters_grad}};
  std::string mapped = name + "abandoned";
  for (const auto& way : ways) {
    if (way.state != row.state) continue;
    const std::string before = Cat(renamed_entry, way.pattern);
    const std::string_view rest =
        name.starts_with(before) ? std::string_view(name).substr(before.size()) : std::string_view(name);
    for (const auto& [target, golden] : way.names) {
      if (rest == target) mapped = ReplaceAll(name, Cat(way.pattern, target), Cat(way.pattern, golden));
    }
  }
  return mapped;
}

void RenameApis(Side mindspore, const StepTable& other, const std::vector<NameMapping::Api>& named) {
  const auto known = KnownApis(mindspore.table, other);
  for (size_t i = 0; i < mindspore.names.entries.size(); ++i) {
    const std::string_view name = mindspore.table.entries[i].name;
    const std::string_view api = ApiOf(name);
    if (const std::string& renamed = known.find(api)->second; renamed != api) {
      mindspore.names.Rename(mindspore.table.entries[i], i, Cat(renamed, name.substr(api.size())));
    }
  }
  absl::flat_hash_set<std::string_view> theirs;
  for (const Entry& entry : other.entries) theirs.insert(ApiOf(entry.name));
  for (const NameMapping::Api& each : named) {
    if (!theirs.contains(std::string_view(each.golden))) continue;
    for (size_t i = 0; i < mindspore.names.entries.size(); ++i) {
      const Entry& entry = mindspore.table.entries[i];
      if (ApiOf(entry.name) != each.target) continue;
      mindspore.names.entries[i] =
          mindspore.names.arena.Add(ReplaceFirst(std::string(entry.name), each.target, each.golden));
      for (uint32_t row = entry.first_row; row < entry.first_row + entry.rows; ++row) {
        mindspore.names.rows[row] = mindspore.names.arena.Add(RowOfApi(mindspore.table.rows[row], entry.name, each));
      }
    }
  }
}

// Rows by their full names; an entry has the name of the one that its first such row belongs to.
void NameRows(Side target, const StepTable& golden, const NameMapping::Names& rows) {
  const absl::flat_hash_map<std::string, std::string> partners(rows.begin(), rows.end());
  absl::flat_hash_map<std::string_view, uint32_t> theirs;
  for (size_t i = 0; i < golden.rows.size(); ++i) theirs.emplace(golden.rows[i].name, static_cast<uint32_t>(i));
  for (size_t i = 0; i < target.table.entries.size(); ++i) {
    const Entry& entry = target.table.entries[i];
    bool first = true;
    for (uint32_t row = entry.first_row; row < entry.first_row + entry.rows; ++row) {
      const auto found = partners.find(AbslView(target.table.rows[row].name));
      if (found == partners.end()) continue;
      target.names.rows[row] = target.names.arena.Add(found->second);
      const auto partner = theirs.find(std::string_view(found->second));
      if (!first || partner == theirs.end()) continue;
      target.names.entries[i] = golden.entries[golden.EntryOf(partner->second)].name;
      first = false;
    }
  }
}

// By EntriesOfLayers, and rows by what follows the name of their entry.
void NameLayers(Side target, const StepTable& golden,
                const std::vector<std::pair<std::string, NameMapping::Names>>& layers) {
  const LayerMatch match = EntriesOfLayers(target.table, golden, layers);
  for (size_t i = 0; i < target.table.entries.size(); ++i) {
    const Entry& entry = target.table.entries[i];
    const int32_t partner = match.golden_of[i];
    const Entry* const other = partner < 0 ? nullptr : &golden.entries[static_cast<size_t>(partner)];
    absl::flat_hash_map<std::string_view, std::string_view> by_suffix;
    for (uint32_t k = 0; other != nullptr && k < other->rows; ++k) {
      const std::string_view name = golden.rows[other->first_row + k].name;
      by_suffix.emplace(name.substr(std::min(other->name.size(), name.size())), name);
    }
    target.names.entries[i] = other == nullptr ? kNothing : other->name;
    for (uint32_t row = entry.first_row; row < entry.first_row + entry.rows; ++row) {
      const std::string_view name = target.table.rows[row].name;
      const std::string_view suffix = name.substr(std::min(entry.name.size(), name.size()));
      auto found = by_suffix.find(suffix);
      const size_t last = suffix.rfind('.') + 1;
      if (const std::string_view renamed = PyTorchParameter(suffix.substr(last));
          found == by_suffix.end() && !renamed.empty()) {
        found = by_suffix.find(std::string_view(Cat(suffix.substr(0, last), renamed)));
      }
      target.names.rows[row] = found == by_suffix.end() ? kNothing : found->second;
    }
  }
}

}  // namespace

const NameMapping& MappingFor(const NameMapping& given, const StepTable& target, const StepTable& golden) {
  static const NameMapping* const kKnown = [] {
    auto* const known = new NameMapping;
    known->cells = true;
    known->apis = true;
    return known;
  }();
  return given.empty() && AcrossFrameworks(target, golden) ? *kKnown : given;
}

MappedNames NamesByMapping(const StepTable& target, const StepTable& golden, const NameMapping& mapping) {
  MappedNames names{NamesOf(target), NamesOf(golden)};
  const Side ours{target, names.target};
  if (!mapping.layers.empty()) NameLayers(ours, golden, mapping.layers);
  if (!mapping.rows.empty()) NameRows(ours, golden, mapping.rows);
  const bool golden_is_mindspore = golden.framework == "mindspore" && target.framework != "mindspore";
  const Side mindspore = golden_is_mindspore ? Side{golden, names.golden} : ours;
  if (mapping.apis) RenameApis(mindspore, golden_is_mindspore ? target : golden, mapping.api_names);
  if (!mapping.cells) return names;
  RenameCells(mindspore);
  for (size_t i = 0; !mapping.cell_names.empty() && i < target.entries.size(); ++i) {
    names.target.Rename(target.entries[i], i, CellName(names.target.entries[i], mapping.cell_names));
  }
  if (!AcrossFrameworks(target, golden)) return names;
  RenameClasses(ours, names.golden);
  RenameParameters(mindspore, golden_is_mindspore ? names.target : names.golden);
  return names;
}

RowMatch MatchRows(const StepTable& target, const StepTable& golden, const NameMapping& given, bool fuzzy) {
  const NameMapping& mapping = MappingFor(given, target, golden);
  if (mapping.empty()) return fuzzy ? MatchFuzzily(target, golden) : MatchExactly(target, golden);
  MappedNames names = NamesByMapping(target, golden, mapping);
  if (mapping.names_partners()) return MatchByNames(names.target, names.golden);
  if (fuzzy) return MatchFuzzily(names.target, names.golden);
  return MatchByNames(Renumbered(target, std::move(names.target)), Renumbered(golden, std::move(names.golden)));
}

std::vector<int32_t> EntriesByMapping(const StepTable& target, const StepTable& golden, const NameMapping& mapping) {
  const MappedNames names = NamesByMapping(target, golden, mapping);
  absl::flat_hash_map<std::string_view, int32_t> theirs;
  for (size_t i = 0; i < golden.entries.size(); ++i) {
    theirs.emplace(names.golden.entries[i], static_cast<int32_t>(i));
  }
  std::vector<int32_t> golden_of;
  for (std::string_view name : names.target.entries) {
    const auto found = theirs.find(name);
    golden_of.push_back(found == theirs.end() ? -1 : found->second);
  }
  return golden_of;
}

}  // namespace msprobe::server
