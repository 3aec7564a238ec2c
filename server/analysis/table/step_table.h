#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/table/cell.h"
#include "server/analysis/table/text_arena.h"

namespace msprobe::server {

// The statistics that only dumps with "extended" statistics have.
struct ExtendedStatistics {
  double mean = 0;
  double norm = 0;
  double variance = 0;
  uint64_t nan_count = 0;
  uint64_t positive_inf_count = 0;
  uint64_t negative_inf_count = 0;
  uint64_t zero_count = 0;
  bool has_mean = false;
  bool has_norm = false;
  bool has_variance = false;
  bool has_counts = false;
};

// Whence a record got a tensor; the numbers of v1::EdgeKind. From kSame on Row.producer names the output it came from.
enum class EdgeKind : uint8_t { kUnknown, kOutside, kSame, kView, kChanged, kUnversioned, kSum };

enum class RowState : uint8_t { kInput, kParameters, kOutput, kParametersGrad, kDebug };

// One tensor, or one scalar argument, of one entry.
struct Row {
  enum class Grad : uint8_t { kAbsent, kFalse, kTrue };

  std::string_view name;           // full: entry, ".input" / ".output" / ".parameters", index or key
  std::string_view data_name;      // its file in dump_tensor_data; empty: none
  std::string_view checksum;       // as the dump spells it; empty: none
  uint32_t dtype = 0;              // StepTable::text
  uint32_t shape = 0;              // StepTable::text, "[2, 16]"
  std::array<Cell, 4> statistics;  // Max, Min, Mean, Norm; of a scalar: its value, four times
  int32_t extended = -1;           // StepTable.extended
  RowState state = RowState::kInput;
  Grad requires_grad = Grad::kAbsent;
  bool is_tensor = false;
  bool is_null = false;                // the argument was None: no dtype, no shape
  EdgeKind edge = EdgeKind::kUnknown;  // of an input
  int32_t producer = -1;               // StepTable.rows: the output that the tensor is, or is a view of; -1: none
  std::string_view type;               // what it is: "torch.Tensor", "float", "torch.Size"
  std::string_view said;               // of an argument that is no tensor: what it says where `statistics` do not

  // Where rows come to other places than those that `producer` tells.
  void ForgetEdge() {
    edge = EdgeKind::kUnknown;
    producer = -1;
  }
};

// One record: consecutive rows, in the order in which tables show them (inputs, parameters, outputs, gradients).
struct Entry {
  std::string_view name;
  std::string_view parent;  // of construct.json, where it was read
  uint32_t first_row = 0;
  uint32_t rows = 0;
  uint32_t token = 0;
  int32_t stack = -1;  // StepTable.stacks
};

// A member of construct.json: a call, and the call around it.
struct Call {
  std::string_view name;
  std::string_view parent;  // empty: none
  int32_t stack = -1;       // StepTable.stacks; of calls that are entries, too
  uint32_t micro_step = 0;  // where StepTable.micro_steps counts them
};

// A send or receive that an argument describes (torch.distributed.P2POp); its row is that of its tensor.
struct PointToPoint {
  uint32_t row = 0;  // StepTable.rows
  std::string_view op;
  int64_t peer = 0;
};

// One step of one rank as analysis sees it, wherever it came from: entries in order of execution, their rows, texts.
//
// Threads: one at a time while it is filled, any number afterwards. Movable; views stay valid.
struct StepTable {
  enum class Mode : uint8_t { kStatistics, kChecksum, kTensor };

  StepTable() { Intern(""); }

  // The number of a text that repeats: dtypes, shapes.
  uint32_t Intern(std::string_view value) {
    if (const auto found = interned.find(value); found != interned.end()) return found->second;
    const std::string_view kept = arena.Add(value);
    const auto number = static_cast<uint32_t>(texts.size());
    texts.push_back(kept);
    interned.emplace(kept, number);
    return number;
  }
  std::string_view text(uint32_t number) const { return texts[number]; }

  // The entry that a row belongs to.
  size_t EntryOf(uint32_t row) const {
    const auto after = std::upper_bound(entries.begin(), entries.end(), row,
                                        [](uint32_t of, const Entry& entry) { return of < entry.first_row; });
    return static_cast<size_t>(after - entries.begin()) - 1;
  }

  TextArena arena;
  std::vector<std::string_view> texts;
  absl::flat_hash_map<std::string_view, uint32_t> interned;

  std::string framework = "pytorch";
  std::string task;
  std::string level;
  Mode mode = Mode::kStatistics;
  bool debug = false;       // debug.json rather than dump.json
  bool has_stacks = false;  // there was a stack.json

  std::vector<Entry> entries;
  std::vector<Row> rows;
  std::vector<ExtendedStatistics> extended;
  std::vector<std::vector<std::string>> stacks;  // lines, innermost first

  std::vector<PointToPoint> messages;  // in order of rows

  // The calls of construct.json in its order, where they were read.
  std::vector<Call> calls;
  std::optional<uint32_t> micro_steps;  // the number of the last one, where the dump says it (Megatron)

  // By row, of steps joined from several ranks: "joined along axis 1 from 4 ranks"; otherwise empty.
  std::vector<std::string> layouts;

  // Of tables that were filled alike: equal and not null means equal entries and row names, none of which stands twice.
  // Whoever changes entries or rows sets it to null.
  const void* layout = nullptr;
  std::shared_ptr<const void> borrowed;  // what texts of other arenas live in
};

}  // namespace msprobe::server
