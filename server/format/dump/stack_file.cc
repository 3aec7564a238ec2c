#include "server/format/dump/stack_file.h"

#include "server/format/cat.h"
#include "server/format/dump/dump_cursor.h"
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
    std::string_view key;
    while (json.NextKey(key)) {
      const std::string name(key);
      const JsonText value = json.Take();
      if (!json.ok()) break;
      if (absl::Status status = take(name, value); !status.ok()) return status;
    }
    if (json.ok()) json.ExpectEnd();
  }
  return json.status();
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
  return ForEachMember(text, limits, [&](const std::string& name, const JsonText& value) {
    if (value.is_array()) {
      if (const std::vector<JsonText> items = ItemsOf(value); items.size() == 2) return visit(name, items[0], value);
    }
    return visit(name, value, value);
  });
}

}  // namespace msprobe::server
