#include "server/importer/batch_builder.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "server/format/storage/record_pass.h"

namespace msprobe::server {
namespace {

constexpr size_t kTargetBytes = 512 << 10;
constexpr int kMaxFragments = 4096;
constexpr size_t kLeafBytes = 48;  // about what a leaf adds to its block

template <typename Key, typename Add>
uint32_t IndexOf(absl::flat_hash_map<Key, uint32_t>& table, const Key& key, Add add) {
  auto [it, inserted] = table.emplace(key, static_cast<uint32_t>(table.size()));
  if (inserted) add();
  return it->second;
}

}  // namespace

BatchBuilder::BatchBuilder(std::string session, size_t max_batch_bytes, Send send)
    : session_(std::move(session)),
      target_bytes_(max_batch_bytes == 0 ? kTargetBytes : std::min(kTargetBytes, max_batch_bytes / 2)),
      send_(std::move(send)) {}

uint64_t BatchBuilder::Define(std::string bytes, bool is_stack) {
  const uint64_t id = XXH3_64bits(bytes.data(), bytes.size());
  if (defined_.insert(id).second) {
    v1::Definition* definition = batch_.add_definitions();
    definition->set_id(id);
    batch_bytes_ += bytes.size() + 16;
    if (is_stack) {
      definition->set_stack(std::move(bytes));
    } else {
      definition->set_structure(std::move(bytes));
    }
  }
  return id;
}

uint64_t BatchBuilder::DefineStack(const v1::Stack& stack) { return Define(stack.SerializeAsString(), true); }

void BatchBuilder::AddLeaf(const ImportedLeaf& leaf) {
  const uint32_t number = static_cast<uint32_t>(block_->leaf_flags_size());
  block_->add_shape(IndexOf(shapes_, leaf.shape,
                            [&] { block_->add_shapes()->mutable_dims()->Add(leaf.shape.begin(), leaf.shape.end()); }));
  block_->add_leaf_flags(leaf.flags);
  if ((leaf.flags & v1::LEAF_STATISTICS) != 0) {
    if ((leaf.flags & v1::LEAF_INTEGER) != 0) {
      for (int64_t extreme : leaf.extremes) block_->add_integer_extremes(extreme);
      for (int i = 2; i < 5; ++i) block_->add_integer_moments(leaf.floating[i]);
    } else {
      for (double value : leaf.floating) {
        if ((leaf.flags & v1::LEAF_WIDE) != 0) {
          block_->add_wide(value);
        } else {
          block_->add_narrow(static_cast<float>(value));
        }
      }
    }
    block_->add_zero_count(leaf.zero_count);
    if (leaf.non_finite) {
      v1::NonFinite* added = block_->add_non_finite();
      *added = *leaf.non_finite;
      added->set_leaf(number);
    }
  }
  if ((leaf.flags & v1::LEAF_CRC32) != 0) block_->add_crc32(leaf.crc32);
  if ((leaf.flags & v1::LEAF_XOR) != 0) block_->add_xor64(leaf.xor64);
  if ((leaf.flags & v1::LEAF_PAYLOAD) != 0) *block_->add_payload() = leaf.payload;
  batch_bytes_ += kLeafBytes;
}

absl::Status BatchBuilder::AddRecord(uint32_t step, uint64_t ordinal, const RecordName& name, ImportedFields fields,
                                     uint32_t flags, uint64_t stack_id, const std::string& parent) {
  v1::Structure structure;
  structure.set_name(JoinPass(name.name, name.pass));
  structure.set_kind(name.kind);
  structure.set_direction(name.direction);
  *structure.mutable_fields() = std::move(fields.fields);
  structure.mutable_fields()->mutable_dict();
  const uint64_t structure_id = Define(structure.SerializeAsString(), false);

  if (block_ != nullptr && block_->step() != step) CloseBlock();
  if (block_ == nullptr) {
    block_ = batch_.add_items()->mutable_block();
    block_->set_step(step);
  }
  block_->add_structure(IndexOf(structures_, structure_id, [&] { block_->add_structures(structure_id); }));
  block_->add_count(name.count);
  block_->add_ordinal_delta(static_cast<int64_t>(ordinal - last_ordinal_));
  last_ordinal_ = ordinal;
  block_->add_fragment_flags(flags | v1::FRAGMENT_ENTER | v1::FRAGMENT_EXIT);
  block_->add_stack(stack_id == 0 ? 0 : 1 + IndexOf(stacks_, stack_id, [&] { block_->add_stacks(stack_id); }));
  block_->add_parent(parent.empty() ? 0 : 1 + IndexOf(parents_, parent, [&] { block_->add_parents(parent); }));
  for (const ImportedLeaf& leaf : fields.leaves) AddLeaf(leaf);
  for (int64_t value : fields.integers) block_->add_integers(value);
  for (double value : fields.floats) block_->add_floats(value);
  for (bool value : fields.booleans) block_->add_booleans(value);
  for (std::string& value : fields.strings) {
    batch_bytes_ += value.size();
    block_->add_strings(std::move(value));
  }
  batch_bytes_ += 32 + parent.size() + 9 * (fields.integers.size() + fields.floats.size());
  if (batch_bytes_ >= target_bytes_ || block_->structure_size() >= kMaxFragments) return Flush();
  return absl::OkStatus();
}

absl::Status BatchBuilder::AddMarker(v1::Marker marker) {
  CloseBlock();
  *batch_.add_items()->mutable_marker() = std::move(marker);
  return absl::OkStatus();
}

void BatchBuilder::CloseBlock() {
  block_ = nullptr;
  last_ordinal_ = 0;
  structures_.clear();
  stacks_.clear();
  parents_.clear();
  shapes_.clear();
}

absl::Status BatchBuilder::Flush() {
  CloseBlock();
  if (batch_.items_size() == 0 && batch_.definitions_size() == 0) return absl::OkStatus();
  batch_.set_session(session_);
  batch_.set_batch_sequence(++sequence_);
  absl::Status status = send_(batch_);
  batch_.Clear();
  batch_bytes_ = 0;
  return status;
}

}  // namespace msprobe::server
