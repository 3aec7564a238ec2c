#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/format/json/json_cursor.h"

namespace msprobe::server {

// One member of a stack.json.
struct DumpStack {
  std::string_view key;
  bool grouped = false;
  std::vector<JsonText> names;  // of the entries that have the stack, if they are grouped
  std::vector<JsonText> lines;  // innermost first
};

// Reads a stack.json of either form: grouped, {"0": [[names], [lines]]}, or {name: [lines]}, where the key is the name
// of the only entry. Names and lines are texts in a good file; the visitor judges them. A status that is not OK ends
// the reading and is given back.
// InvalidArgument: "line 3, column 7: what is wrong", "KEY: a list is expected, not the number 3", a key that stands
// twice.
using StackVisitor = absl::FunctionRef<absl::Status(const DumpStack&)>;
absl::Status ReadStacks(std::string_view text, JsonLimits limits, StackVisitor visit);

// The member of a construct.json that is no call: its value is Megatron's number of micro steps.
inline constexpr std::string_view kMicroSteps = "megatron_micro_step_number";

// Reads a construct.json: {name: parent}, where the parent is a text or null. Megatron's form
// {name: [parent, micro step]} comes as its parent; `value` is the whole.
// InvalidArgument: as above; another parent; one that is its own, also by way of others. The last is said when all have
// been visited.
using ParentVisitor =
    absl::FunctionRef<absl::Status(std::string_view name, const JsonText& parent, const JsonText& value)>;
absl::Status ReadParents(std::string_view text, JsonLimits limits, ParentVisitor visit);

}  // namespace msprobe::server
