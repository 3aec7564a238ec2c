#include "server/analysis/module_tree/record_places.h"

#include <algorithm>
#include <initializer_list>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_split.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/analysis/module_tree/module_tree.h"
#include "server/format/cat.h"
#include "server/format/storage/record_pass.h"

namespace msprobe::server {
namespace {

bool HasAny(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

// The function of the framework through which a call was made: of the lines of the framework before the user's own,
// the last one. Innermost first.
std::string FrameFunction(const std::vector<std::string>& lines) {
  const std::string* frame = nullptr;
  for (const std::string& line : lines) {
    const std::string_view file = std::string_view(line).substr(0, line.find(','));
    if (!HasAny(file, {"site-packages/torch", "package/torch", "site-packages/mindspore", "package/mindspore"})) break;
    frame = &line;
  }
  if (frame == nullptr) return {};
  const std::vector<std::string> parts = absl::StrSplit(*frame, ',');
  if (parts.size() < 3 || HasAny(parts[0], {"msprobe", "MindSpeed"}) || HasAny(parts[2], {"construct", "__call__"})) {
    return {};
  }
  const std::vector<std::string> words = absl::StrSplit(parts[2], ' ', absl::SkipEmpty());
  return words.size() < 2 ? std::string() : words[1];
}

// The scope around a record.
std::string ScopeAround(const Entry& entry, bool gradient) {
  if (gradient) return std::string(WithoutLastParts(entry.name, 3));
  // A module's name ends with its own name, class, direction and count.
  const bool layer = IsModuleKind(PartsOfName(entry.name)[0]);
  const std::string_view scope = layer ? WithoutLastParts(entry.name, 4) : WithoutLastParts(entry.parent, 3);
  return std::string(scope.empty() ? ModuleTree::kTopType : scope);
}

RecordPlace PlaceOf(const StepTable& table, const Entry& entry) {
  const std::vector<std::string_view> parts = PartsOfName(entry.name);
  RecordPlace place;
  const size_t size = parts.size();
  const bool bare_gradient = parts.back() == "parameters_grad";
  if (size < 4 && !(size >= 3 && bare_gradient)) {
    place.scope = Cat(ModuleTree::kTopType, ".", entry.name);
    return place;
  }
  const bool gradient = bare_gradient || parts[size - 2] == "parameters_grad";
  const bool layer = IsModuleKind(parts[0]);
  std::string_view name;
  if (gradient) {
    const size_t back = bare_gradient ? 0 : 1;
    name = parts[size - 3 - back];
    place.type = parts[size - 2 - back];
    place.state = "parameters_grad";
  } else {
    place.type = parts[size - 3];
    name = layer ? parts[size - 4] : std::string_view(place.type);
    place.state = layer ? parts[size - 2] : parts.back();
  }
  place.scope = ScopeAround(entry, gradient);
  if (!gradient && !layer && parts[0] != "Primitive" && parts[0] != "Jit" && entry.stack >= 0) {
    const std::string function = FrameFunction(table.stacks[static_cast<size_t>(entry.stack)]);
    if (!function.empty()) place.scope += Cat(".", function);
  }
  place.scope += Cat(".", name);
  return place;
}

}  // namespace

std::vector<RecordPlace> PlacesOfRecords(const StepTable& table) {
  std::vector<RecordPlace> places;
  absl::flat_hash_map<std::string_view, size_t> by_name;
  for (size_t i = 0; i < table.entries.size(); ++i) {
    places.push_back(PlaceOf(table, table.entries[i]));
    by_name.emplace(table.entries[i].name, i);
  }
  // Backward calls have no stack.
  for (size_t i = 0; i < places.size(); ++i) {
    std::vector<std::string_view> parts = PartsOfName(WithoutPass(table.entries[i].name));
    bool backward = false;
    std::string forward;
    for (size_t part = 0; part < parts.size(); ++part) {
      const bool here = part + 2 >= parts.size() && parts[part] == "backward";
      backward = backward || here;
      forward += Cat(part == 0 ? "" : ".", here ? "forward" : parts[part]);
    }
    const auto found = by_name.find(forward);
    if (backward && found != by_name.end()) places[i].scope = places[found->second].scope;
  }
  return places;
}

}  // namespace msprobe::server
