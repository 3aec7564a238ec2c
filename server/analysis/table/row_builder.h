#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// An argument that is no tensor, as dump.json says it.
struct ScalarLeaf {
  struct Value {
    std::string_view python;  // its type in Python: "float", "list"
    Cell cell;
    std::string text;             // as Python's str() prints it
    std::optional<size_t> items;  // of a list
  };

  std::string_view type;  // "float", "torch.Size", "slice", "torch.ProcessGroup"
  std::optional<Value> value;
  std::optional<std::string> format;       // the text of a torch.memory_format
  std::optional<std::string> group_ranks;  // the text of a process group's ranks
  std::string_view checksum;               // where the dump has one
};

// "class_type" of an argument that describes a send or receive; it is the row of its "tensor".
inline constexpr std::string_view kPointToPoint = "torch.distributed.P2POp";

// Adds entries to a StepTable, value by value: the one place that knows how mindstudio-probe's tables name, order and
// type the rows of an entry. Whoever reads a source (a dump.json, a stored step) walks it and tells what it meets.
//
//   Begin(entry); Open(section); [Enter(key); AddTensor(...); Leave(...);] Close(); ... Finish(token)
//
// One thread at a time; the table is borrowed.
class RowBuilder {
 public:
  // In the order in which the rows of an entry stand.
  enum Section : uint8_t { kInputArgs, kInputKwargs, kInput, kParameters, kOutput, kWhole };
  static std::optional<Section> SectionOf(std::string_view key);

  explicit RowBuilder(StepTable* table) : table_(*table) {}
  StepTable& table() { return table_; }

  void Begin(std::string_view entry);
  // Whether the entry has no sections, its value being that of one kWhole: of level debug, and gradients of parameters.
  bool is_whole() const { return is_debug_ || is_gradients_; }
  void Open(Section section);
  void Close() { path_.resize(entry_size_); }

  // Goes into a member of a dict or an item of a list; gives what Leave() takes to come out again.
  size_t Enter(std::string_view key);
  size_t Enter(int index);
  void Leave(size_t size) { path_.resize(size); }
  std::string_view path() const { return path_; }

  // Each gives the number of its row in the table, which holds where sections are opened in their order.
  uint32_t AddNull();
  // row: dtype (not empty), shape, statistics and all else that the source says of the tensor but its name and state.
  uint32_t AddTensor(Row row);
  // row: what the source says besides the leaf.
  uint32_t AddScalar(const ScalarLeaf& leaf, Row row);
  // The tensor of a point to point operation.
  void AddMessage(const PointToPoint& message) { messages_.push_back(message); }

  // Puts the rows into the order of their sections.
  void Finish(uint32_t token);

 private:
  uint32_t Put(Row row);

  StepTable& table_;
  std::string path_;  // full name of the value at hand
  size_t entry_size_ = 0;
  uint32_t first_row_ = 0;
  bool is_debug_ = false;
  bool is_gradients_ = false;
  bool in_gradients_ = false;  // indices are left out of names
  Section section_ = kInputArgs;
  std::vector<Section> sections_;  // of the open entry's rows
  std::vector<PointToPoint> messages_;
};

}  // namespace msprobe::server
