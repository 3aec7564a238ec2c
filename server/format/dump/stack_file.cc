#include "server/format/dump/stack_file.h"

#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/format/cat.h"
#include "server/format/dump/dump_cursor.h"
#include "server/format/dump/unique_names.h"
#include "server/format/json/json_value.h"

namespace msprobe::server {
namespace {

std::vector<JsonText> ItemsOf(const JsonText& list) {
  std::vector<JsonText> items;
  JsonCursor json(list.text);
  if (!json.EnterArray()) return items;
  while (json.NextItem()) items.push_back(json.Take());
  return items;
}

// Gives `take` each member of a file that is an object.
absl::Status ForEachMember(std::string_view text, JsonLimits limits,
                           absl::FunctionRef<absl::Status(const std::string& key, const JsonText& value)> take) {
  JsonCursor json(text, limits);
  if (EnterFile(json, text)) {
    UniqueNames names(text);
    std::string_view key;
    while (json.NextKey(key)) {
      const std::string name(key);
      if (!names.Add(key)) return absl::InvalidArgumentError(Cat(name, " stands there twice; leave one of them"));
      const JsonText value = json.Take();
      if (!json.ok()) break;
      if (absl::Status status = take(name, value); !status.ok()) return status;
    }
    if (json.ok()) json.ExpectEnd();
  }
  return json.status();
}

using Parents = std::vector<std::pair<std::string, std::string>>;  // name and parent

// Refuses a name that is above itself.
absl::Status CheckChains(const Parents& parents) {
  absl::flat_hash_map<std::string_view, size_t> places;
  for (size_t i = 0; i < parents.size(); ++i) places.emplace(parents[i].first, i);
  std::vector<size_t> walks(parents.size());  // the walk that came by, from 1
  for (size_t walk = 1; walk <= parents.size(); ++walk) {
    for (size_t at = walk - 1; walks[at] == 0;) {
      walks[at] = walk;
      const auto above = places.find(parents[at].second);
      if (above == places.end()) break;
      at = above->second;
      if (walks[at] != walk) continue;
      const auto& [name, parent] = parents[at];
      return absl::InvalidArgumentError(Cat(name, ": its parent ", parent, " is ",
                                            name == parent ? "itself" : "inside it",
                                            "; the module around it or null is expected"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadStacks(std::string_view text, JsonLimits limits, StackVisitor visit) {
  return ForEachMember(text, limits, [&](const std::string& key, const JsonText& value) {
    if (!value.is_array()) {
      return absl::InvalidArgumentError(Cat(key, ": a list is expected, not ", Describe(value)));
    }
    DumpStack stack;
    stack.key = key;
    stack.lines = ItemsOf(value);
    stack.grouped = stack.lines.size() == 2 && stack.lines[0].is_array() && stack.lines[1].is_array();
    if (stack.grouped) {
      stack.names = ItemsOf(stack.lines[0]);
      stack.lines = ItemsOf(stack.lines[1]);
    }
    return visit(stack);
  });
}

absl::Status ReadParents(std::string_view text, JsonLimits limits, ParentVisitor visit) {
  Parents parents;
  absl::Status status = ForEachMember(text, limits, [&](const std::string& name, const JsonText& value) {
    if (name == kMicroSteps) return visit(name, value, value);
    JsonText parent = value;
    if (value.is_array()) {
      if (const std::vector<JsonText> items = ItemsOf(value); items.size() == 2) parent = items[0];
    }
    if (parent.is_string()) {
      parents.emplace_back(name, StringOf(parent));
    } else if (!parent.is_null()) {
      return absl::InvalidArgumentError(Cat(name, ": the name of a module or null is expected, not ", Describe(value)));
    }
    return visit(name, parent, value);
  });
  return status.ok() ? CheckChains(parents) : status;
}

}  // namespace msprobe::server
