#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/table/row_builder.h"
#include "server/analysis/table/step_table.h"
#include "server/format/dump/dump_value.h"
#include "server/format/json/json_cursor.h"

namespace msprobe::server {

// Adds the rows of a value of dump.json: of an argument, a list or dict of arguments, or all of a section.
// One thread at a time; the row builder is borrowed.
class DumpValueReader {
 public:
  explicit DumpValueReader(RowBuilder* rows) : rows_(*rows), table_(rows->table()) {}

  // Takes the next value of the text, which stands where the row builder is. Errors stick in the cursor.
  void Read(JsonCursor& json);

  // Whether a tensor had the key "md5".
  bool saw_checksum() const { return saw_checksum_; }

 private:
  // Adds the row of a send or receive if the dict in `leaf_` is one.
  bool Message(JsonCursor& json);
  uint32_t Leaf(JsonCursor& json, const DumpLeaf& leaf);
  void Extended(const JsonText& extended, Row& row);
  Cell CellOf(const JsonText& value);
  uint32_t ShapeOf(const JsonText& shape);
  ScalarLeaf::Value ValueOf(const JsonText& value);
  // As Python's str() prints the value.
  std::string PythonText(const JsonText& value);
  std::string PythonText(JsonCursor& json, bool repr);

  RowBuilder& rows_;
  StepTable& table_;
  bool saw_checksum_ = false;
  absl::flat_hash_map<std::string, uint32_t> shapes_;  // by their JSON: a model has few, and each stands in many rows
  // Of the value at hand, kept to be used again.
  DumpLeaf leaf_;
  std::string shape_;
  std::string scratch_;
};

}  // namespace msprobe::server
