#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "server/analysis/table/json_cursor.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// Fills a StepTable from the files of a dump, ours or mindstudio-probe's, without a document in between.
// One thread at a time; the table is borrowed.
class DumpTableBuilder {
 public:
  explicit DumpTableBuilder(StepTable* table) : table_(table) {}

  // The whole of a dump.json or debug.json. InvalidArgument: "line 3, column 7: what is wrong".
  absl::Status AddDump(std::string_view text);

  // One entry: its JSON value as dump.json has it.
  absl::Status AddEntry(std::string_view name, std::string_view json, uint32_t token);

  // stack.json of either form: {"0": [[names], [lines]]} or {name: [lines]}. After AddDump.
  absl::Status AddStacks(std::string_view text);

  // construct.json: {name: parent, null or [parent, micro step]}. After AddDump.
  absl::Status AddConstruct(std::string_view text);

 private:
  void Entries(JsonCursor& json);
  void EntryOf(std::string_view name, JsonCursor& json);
  void Value(JsonCursor& json, RowState state, int depth);
  bool ObjectLeaf(JsonCursor& json, RowState state);
  void Leaf(JsonCursor& json, RowState state);
  void NullRow(RowState state);
  void Extended(JsonCursor& json, Row& row);
  Cell CellOf(JsonCursor& json);
  uint32_t ShapeOf(JsonCursor& json);
  std::string ArrayShape(JsonCursor& json, std::optional<size_t> value, size_t end);
  std::string PythonText(JsonCursor& json, bool repr);
  void Put(const Row& row);
  void FinishEntry(std::string_view name, uint32_t token);
  void AddLine(JsonCursor& json, std::vector<std::string>& lines);

  StepTable* const table_;
  std::string path_;  // full name of the value at hand
  size_t entry_name_size_ = 0;
  bool is_gradient_ = false;
  bool saw_checksum_ = false;
  std::string shape_;
  // Rows of the open entry: input_args, input_kwargs, input, parameters, output, gradients.
  static constexpr size_t kSections = 6;
  size_t section_ = 0;
  std::vector<Row> pending_[kSections];
  std::vector<std::pair<size_t, PointToPoint>> pending_messages_;  // by section; rows count from its first
  absl::flat_hash_map<std::string_view, uint32_t> entry_index_;
};

// How Python prints a text inside a list: quotes, escapes.
void AppendPythonRepr(std::string_view text, std::string& out);

}  // namespace msprobe::server
