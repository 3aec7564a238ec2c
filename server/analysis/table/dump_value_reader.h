#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/analysis/table/row_builder.h"
#include "server/analysis/table/step_table.h"
#include "server/format/json/json_cursor.h"

namespace msprobe::server {

// Adds the rows of a value of dump.json: of an argument, a list or dict of arguments, or all of a section.
// One thread at a time; the row builder is borrowed.
class DumpValueReader {
 public:
  explicit DumpValueReader(RowBuilder* rows) : rows_(*rows), table_(rows->table()) {}

  // Takes the next value of the text, which stands where the row builder is. Errors stick in the cursor.
  void Read(JsonCursor& json) { Value(json, 0); }

  // Whether a tensor had the key "md5".
  bool saw_checksum() const { return saw_checksum_; }

 private:
  void Value(JsonCursor& json, int depth);
  bool ObjectLeaf(JsonCursor& json);
  uint32_t Leaf(JsonCursor& json);
  void Extended(JsonCursor& json, Row& row);
  Cell CellOf(JsonCursor& json);
  uint32_t ShapeOf(JsonCursor& json);
  ScalarLeaf::Value ValueOf(JsonCursor& json);
  std::string PythonText(JsonCursor& json, bool repr);

  RowBuilder& rows_;
  StepTable& table_;
  bool saw_checksum_ = false;
  std::string shape_;
};

}  // namespace msprobe::server
