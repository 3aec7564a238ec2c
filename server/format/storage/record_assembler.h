#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"
#include "server/format/storage/block_columns.h"
#include "server/format/storage/placed_value.h"

namespace msprobe::server {

// Joins the fragments of one step of one session into records.
//
// 1. Fragments with the same name, kind, direction and count form one record. Its fields are those of its ENTER
//    fragments and then those of the others, in order of arrival. A field that comes twice is merged: dicts by key,
//    lists by index, for anything else the later value that is not null.
// 2. A record has the ordinal of its first ENTER fragment, or else of its first fragment, unless a later fragment moves
//    it: a FRAGMENT_UPDATE, or the EXIT of a module or of parameters_grad. The last move wins.
// 3. A record has the flags of all its fragments together, the token of the first fragment, and the first parent and
//    stack that are not empty.
// 4. Only ForEach decodes, one record at a time. So the memory is that of the blocks and a small index.
//
// Threads: one at a time.
class RecordAssembler {
 public:
  using StructureSource = std::function<absl::StatusOr<SharedStructure>(uint64_t id)>;

  RecordAssembler(uint32_t step, v1::Rank rank, StructureSource structures);

  // Blocks come in order of arrival. DataLoss: the block does not pass CheckBlock or CheckDigests.
  absl::Status Add(std::shared_ptr<const v1::Block> block);

  size_t records() const { return records_.size(); }

  // Visits the records in order of ordinal, with Record.stack empty. Stops at the first status that is not OK.
  absl::Status ForEach(absl::FunctionRef<absl::Status(const v1::Record& record, uint64_t stack_id)> visit) const;

  // As ForEach, but decodes and visits only the records for which `wanted` is true.
  absl::Status ForEachNamed(absl::FunctionRef<bool(const std::string& full_name, uint32_t token)> wanted,
                            absl::FunctionRef<absl::Status(const v1::Record& record, uint64_t stack_id)> visit) const;

  // As ForEach, but without what names the producer of a tensor (TensorLeaf.edge).
  absl::Status ForEachWithoutEdges(
      absl::FunctionRef<absl::Status(const v1::Record& record, uint64_t stack_id)> visit) const;

  // As ForEach, but without the records' fields, which are not decoded.
  absl::Status ForEachHead(absl::FunctionRef<absl::Status(const v1::Record& head, uint64_t stack_id)> visit) const;

  // Visits in order of ordinal each record's head, the places of its fields, and the number of the fragment with its
  // stack. Fragments are numbered from 1 in order of arrival; 0: the record has no stack.
  void ForEachPlaced(
      absl::FunctionRef<void(const v1::Record& head, const PlacedValue& fields, uint64_t stack_fragment)> visit) const;

  // Visits the fragments that ended a call, whose tensors may be producers of others (Block.edge_distance): the last of
  // each ordinal. first_leaf: the place of its first tensor, as PlacedValue::place.
  void ForEachEnd(absl::FunctionRef<void(uint64_t ordinal, uint64_t first_leaf, uint32_t leaves)> visit) const;

  // The number of values in all blocks together.
  const BlockPlaces& places() const { return places_; }

  // Whether a leaf of any record refers to a payload.
  bool has_payloads() const;

 private:
  struct KnownStructure {
    SharedStructure decoded;
    uint32_t name = 0;  // index into names_
  };
  struct Fragment {
    uint32_t block = 0;
    uint32_t index = 0;
    int32_t next = -1;  // the record's next fragment in order of arrival
  };
  struct RecordKey {
    uint32_t name = 0;
    uint8_t kind = 0;
    uint8_t direction = 0;
    uint32_t count = 0;
    friend bool operator==(const RecordKey&, const RecordKey&) = default;
    template <typename H>
    friend H AbslHashValue(H h, const RecordKey& k) {
      return H::combine(std::move(h), k.name, k.kind, k.direction, k.count);
    }
  };
  struct Entry {
    RecordKey key;
    uint64_t ordinal = 0;
    bool moved = false;
    bool entered = false;
    uint32_t flags = 0;
    int32_t first = -1;
    int32_t last = -1;
  };
  // By ordinal, the last fragment that ended a call there, and its record.
  struct End {
    int32_t fragment = -1;
    uint32_t record = 0;
  };
  using Ends = absl::flat_hash_map<uint64_t, End>;
  struct StoredBlock {
    std::shared_ptr<const v1::Block> block;
    std::vector<FragmentColumns> fragments;
    absl::flat_hash_map<uint32_t, int> non_finite;  // leaf -> index in Block.non_finite
    std::vector<const KnownStructure*> structures;
    BlockPlaces places;
  };

  absl::StatusOr<const KnownStructure*> Known(uint64_t id);
  // Edges without a producer among `ends` are left out.
  absl::Status ForEachWanted(absl::FunctionRef<bool(const Entry& entry)> wanted, const Ends& ends,
                             absl::FunctionRef<absl::Status(const v1::Record& record, uint64_t stack_id)> visit) const;
  void AddFragment(uint32_t block_index, uint32_t index);
  // Both return the record's stack. The head is everything but the fields.
  uint64_t BuildHead(const Entry& entry, v1::Record& record) const;
  uint64_t Build(const Entry& entry, const Ends& ends, v1::Record& record) const;
  // First the ENTER fragments, then the others.
  void ForEachFragment(const Entry& entry, absl::FunctionRef<void(const StoredBlock& block, int fragment)> visit) const;
  std::string NameOf(const Entry& entry) const;
  std::vector<uint32_t> Order() const;
  Ends FindEnds() const;
  void NameProducer(const Ends& ends, uint64_t ordinal, uint32_t leaf, v1::Edge& edge) const;

  const uint32_t step_;
  const v1::Rank rank_;
  const StructureSource source_;
  absl::flat_hash_map<uint64_t, std::unique_ptr<const KnownStructure>> structures_;
  absl::flat_hash_map<std::string, uint32_t> name_index_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<StoredBlock>> blocks_;
  BlockPlaces places_;
  std::vector<Fragment> fragments_;
  std::vector<Entry> records_;
  absl::flat_hash_map<RecordKey, uint32_t> record_index_;
  bool has_edges_ = false;
};

}  // namespace msprobe::server
