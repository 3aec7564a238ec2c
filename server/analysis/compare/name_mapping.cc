#include "server/analysis/compare/name_mapping.h"

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// A key that no row of the golden side has.
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

bool HasPart(std::string_view name, std::string_view part) {
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const size_t after = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (after == name.size() || name[after] == '.')) return true;
  }
  return false;
}

// Where ".forward.", ".backward." or, if wanted, ".parameters_grad." begins.
size_t WayAt(std::string_view name, bool gradients) {
  size_t at = std::min(name.find(".forward."), name.find(".backward."));
  return gradients ? std::min(at, name.find(".parameters_grad.")) : at;
}

std::string CellKey(std::string_view row, const NameMapping& mapping) {
  if (!HasPart(row, "parameters_grad") && WayAt(row, false) == std::string_view::npos) return kNothing;
  std::string name = ReplaceFirst(std::string(row), "Cell", "Module");
  if (mapping.cell_names.empty()) return name;
  const size_t dot = name.find('.');
  const std::string_view after = std::string_view(name).substr(dot == std::string::npos ? 0 : dot + 1);
  const std::string cell(after.substr(0, WayAt(after, true)));
  std::string renamed = cell;
  bool whole = false;
  for (const auto& [target, golden] : mapping.cell_names) {
    if (target != cell) continue;
    renamed = golden;
    whole = true;
  }
  for (size_t i = 0; !whole && i < mapping.cell_names.size(); ++i) {
    renamed = ReplaceFirst(renamed, mapping.cell_names[i].first, mapping.cell_names[i].second);
  }
  return renamed == cell ? name : ReplaceFirst(name, cell, renamed);
}

std::string TableKey(std::string_view row) {
  const std::string_view api = ApiOf(row);
  const std::string_view kind = api.substr(0, api.find('.'));
  if (kind == "Mint") return ReplaceAll(std::string(row), "Mint", "Torch");
  if (kind == "MintFunctional") return ReplaceAll(std::string(row), "MintFunctional", "Functional");
  const std::string known = PyTorchName(api);
  return known.empty() ? std::string(row) : ReplaceAll(std::string(row), api, known);
}

// The key of a row of one of the APIs that a mapping names.
std::string ApiKey(const Row& row, std::string_view entry, const NameMapping::Api& api) {
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
  std::string key = name + "abandoned";
  for (const auto& way : ways) {
    if (way.state != row.state) continue;
    const std::string before = Cat(renamed_entry, way.pattern);
    const std::string_view rest =
        name.starts_with(before) ? std::string_view(name).substr(before.size()) : std::string_view(name);
    for (const auto& [target, golden] : way.names) {
      if (rest == target) key = ReplaceAll(name, Cat(way.pattern, target), Cat(way.pattern, golden));
    }
  }
  return key;
}

std::vector<std::string> ApiKeys(const StepTable& target, const StepTable& golden, const NameMapping& mapping) {
  std::vector<std::string> keys;
  keys.reserve(target.rows.size());
  for (const Row& row : target.rows) keys.push_back(TableKey(row.name));
  absl::flat_hash_set<std::string_view> known;
  for (const Row& row : golden.rows) known.insert(ApiOf(row.name));
  for (const NameMapping::Api& api : mapping.api_names) {
    if (!known.contains(std::string_view(api.golden))) continue;
    for (const Entry& entry : target.entries) {
      for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
        if (ApiOf(target.rows[i].name) == api.target) keys[i] = ApiKey(target.rows[i], entry.name, api);
      }
    }
  }
  return keys;
}

std::vector<std::string> RowKeys(const StepTable& target, const NameMapping::Names& names) {
  const absl::flat_hash_map<std::string, std::string> partners(names.begin(), names.end());
  std::vector<std::string> keys;
  keys.reserve(target.rows.size());
  for (const Row& row : target.rows) {
    const auto found = partners.find(AbslView(row.name));
    keys.push_back(found == partners.end() ? std::string(row.name) : found->second);
  }
  return keys;
}

}  // namespace

RowMatch MatchByMapping(const StepTable& target, const StepTable& golden, const NameMapping& mapping) {
  std::vector<std::string> keys;
  if (mapping.apis) {
    keys = ApiKeys(target, golden, mapping);
  } else if (mapping.cells) {
    for (const Row& row : target.rows) keys.push_back(CellKey(row.name, mapping));
  } else if (!mapping.layers.empty()) {
    keys = RowKeys(target, RowsOfLayers(target, golden, mapping.layers));
  } else {
    keys = RowKeys(target, mapping.rows);
  }
  return MatchKeys(std::vector<std::string_view>(keys.begin(), keys.end()), golden);
}

}  // namespace msprobe::server
