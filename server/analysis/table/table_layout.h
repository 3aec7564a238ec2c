#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/ingest.pb.h"
#include "msprobe/v1/record.pb.h"
#include "server/analysis/table/step_table.h"
#include "server/format/dump/dump_rules.h"
#include "server/format/storage/structure_summary.h"
#include "server/format/tensor_file/tensor_file.h"

namespace msprobe::server {

// Blocks of one step of one session, in order of arrival.
using StepBlocks = std::vector<std::shared_ptr<const v1::Block>>;

// Names, nesting and dtypes of one step, without its numbers: what steps that repeat have in common. Made once from the
// first of them; the others cost a pass over their columns. A table that is filled from it says what the export would
// say: DumpRules and RowBuilder hold the rules of both.
//
// Constant once it is made; any thread.
struct TableLayout {
  // Of what a layout depends on: structures, counts, order, flags, parents, tokens, texts and booleans of all
  // fragments, which leaves have content, whether there are edges, and the settings. Not on how fragments were cut into
  // blocks.
  using Key = std::array<uint64_t, 2>;

  struct Leaf {
    int32_t row = -1;  // -1: shown nowhere
    v1::DType dtype = v1::DTYPE_UNSPECIFIED;
    const v1::Node::TensorSlot* slot = nullptr;
    DumpRules rules;
    bool numpy = false;
    uint64_t ordinal = 0;  // of its fragment
  };
  // A fragment that ended a call: the places of its tensors among `leaves`.
  struct End {
    uint64_t first_leaf = 0;
    uint32_t leaves = 0;
  };
  struct Scalar {
    int32_t row = -1;
    bool text = false;  // shown as a text
  };

  // Rows with all that does not change; what changes is filled in, and has its kind and 0 here. entries[i].stack is not
  // set.
  StepTable table;
  bool unique = false;  // no row name stands twice
  bool crc32 = false;
  bool xor_checksum = false;
  std::vector<Leaf> leaves;                 // in order of arrival
  std::vector<Scalar> integers;             // Block.integers, in order of arrival
  std::vector<Scalar> floats;               // Block.floats
  std::vector<uint64_t> stack_of;           // entry -> index of the fragment that has its stack, plus 1; 0: none
  std::vector<SharedStructure> structures;  // whose slots leaves point to
  absl::flat_hash_map<uint64_t, End> ends;  // by ordinal; empty where the blocks tell of no edges
};

TableLayout::Key LayoutKey(const v1::CaptureSettings& settings, const StepBlocks& blocks);

using StructureLookup = absl::FunctionRef<absl::StatusOr<SharedStructure>(uint64_t id)>;

// DataLoss: a block does not keep to its structures.
absl::StatusOr<std::shared_ptr<const TableLayout>> MakeTableLayout(const v1::CaptureSettings& settings,
                                                                   const StepBlocks& blocks, StructureLookup structure);

// Where the content of a row is.
struct StoredContent {
  const v1::PayloadRef* ref = nullptr;  // of the block
  const v1::Node::TensorSlot* slot = nullptr;
  const v1::Shape* shape = nullptr;
};
using StoredContents = absl::flat_hash_map<std::string_view, StoredContent>;  // by Row.data_name

// Makes the table of a step whose blocks have this layout. Stack ids of fragments, by Entry, are given to `stack_of`
// where it is not null. DataLoss: a column is too short or too long.
absl::Status FillTable(const std::shared_ptr<const TableLayout>& layout, const StepBlocks& blocks, StepTable& table,
                       StoredContents& contents, std::vector<uint64_t>* stack_of);

}  // namespace msprobe::server
