#pragma once

#include <cstdint>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "server/analysis/table/dump_value_reader.h"
#include "server/analysis/table/row_builder.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// Fills a StepTable from the files of a dump, ours or mindstudio-probe's, which DumpCursor reads.
// One thread at a time; the table is borrowed.
class DumpReader {
 public:
  explicit DumpReader(StepTable* table) : table_(table), rows_(table), values_(&rows_) {}

  // The whole of a dump.json or debug.json. InvalidArgument: "line 3, column 7: what is wrong", with the argument's
  // name.
  absl::Status AddDump(std::string_view text);

  // One entry: its JSON value as dump.json has it.
  absl::Status AddEntry(std::string_view name, std::string_view json, uint32_t token);

  // stack.json of either form. After AddDump. Names and lines that are no texts are passed over.
  absl::Status AddStacks(std::string_view text);

  // construct.json. After AddDump.
  absl::Status AddConstruct(std::string_view text);

  // The same, and keeps every call with its stack. After AddStacks, if there are stacks.
  absl::Status AddCalls(std::string_view text);

 private:
  void AddEntry(std::string_view name, JsonCursor& json, uint32_t token);
  // Null: the dump has no such entry.
  Entry* FindEntry(std::string_view name);

  StepTable* const table_;
  RowBuilder rows_;
  DumpValueReader values_;
  absl::flat_hash_map<std::string_view, uint32_t> entry_index_;  // made when it is first needed
  absl::flat_hash_map<std::string_view, int32_t> other_stacks_;  // of calls that are no entries
};

}  // namespace msprobe::server
