#include "agent/core/transport/packing/block_writer.h"

#include <utility>

#include "agent/core/content_hash.h"
#include "agent/core/queue/fragment_digest.h"
#include "agent/core/queue/leaf_flags.h"
#include "agent/core/utf8.h"

namespace msprobe::core {

void BlockWriter::Open(v1::Batch* batch, uint32_t step, uint32_t token) {
  Begin(batch, batch->add_items()->mutable_block(), step, token);
}

void BlockWriter::OpenScalars(v1::Batch* batch, uint32_t step) {
  Begin(batch, batch->add_items()->mutable_scalars(), step, 0);
}

void BlockWriter::Begin(v1::Batch* batch, v1::Block* block, uint32_t step, uint32_t token) {
  batch_ = batch;
  block_ = block;
  block_->set_step(step);
  block_->set_token(token);
  last_ordinal_ = 0;
  structure_index_.clear();
  stack_index_.clear();
  parent_index_.clear();
  shape_index_.clear();
}

size_t BlockWriter::Add(const Fragment& fragment, std::vector<Leaf>& leaves, std::vector<AnnouncedPayload>* announced) {
  bytes_ = 0;
  block_->add_structure(StructureIndex(fragment.structure));
  block_->add_count(fragment.count);
  block_->add_ordinal_delta(static_cast<int64_t>(fragment.ordinal - last_ordinal_));
  last_ordinal_ = fragment.ordinal;
  block_->add_fragment_flags(fragment.flags);
  block_->add_stack(fragment.stack == 0 ? 0 : StackIndex(fragment.stack) + 1);
  block_->add_parent(fragment.parent == 0 ? 0 : ParentIndex(fragment.parent) + 1);
  block_->add_thread(fragment.thread);
  block_->add_digest(fragment.digest != 0 ? fragment.digest : DigestOf(fragment, dictionary_));
  for (Leaf& leaf : leaves) AddLeaf(leaf, announced);
  for (int64_t value : fragment.integers) block_->add_integers(value);
  for (double value : fragment.floats) block_->add_floats(value);
  for (bool value : fragment.booleans) block_->add_booleans(value);
  for (std::string_view value : fragment.strings) block_->add_strings(ToUtf8(value));
  bytes_ += 28 + leaves.size() * 32 + 8 * (fragment.integers.size() + fragment.floats.size());
  for (std::string_view value : fragment.strings) bytes_ += value.size() + 2;
  return bytes_;
}

void BlockWriter::AddLeaf(Leaf& leaf, std::vector<AnnouncedPayload>* announced) {
  const uint32_t index = static_cast<uint32_t>(block_->shape_size());
  block_->add_shape(ShapeIndex(leaf.shape));
  const uint32_t flags = LeafFlags(leaf);
  block_->add_leaf_flags(flags);
  block_->add_edge(static_cast<uint32_t>(leaf.edge.kind));
  if (leaf.edge.names_producer()) {
    block_->add_edge_distance(leaf.edge.distance);
    block_->add_edge_leaf(leaf.edge.leaf);
    bytes_ += 4;
  }
  if (leaf.has_statistics) {
    block_->add_zero_count(leaf.zero_count);
    if (leaf.is_integer) {
      block_->add_integer_extremes(leaf.integer_max);
      block_->add_integer_extremes(leaf.integer_min);
      for (double value : {leaf.mean, leaf.norm, leaf.variance}) block_->add_integer_moments(value);
    } else if (flags & v1::LEAF_WIDE) {
      for (double value : {leaf.max, leaf.min, leaf.mean, leaf.norm, leaf.variance}) block_->add_wide(value);
    } else {
      for (double value : {leaf.max, leaf.min, leaf.mean, leaf.norm, leaf.variance}) {
        block_->add_narrow(static_cast<float>(value));
      }
    }
    if (HasNonFinite(leaf)) {
      v1::NonFinite* const out = block_->add_non_finite();
      out->set_leaf(index);
      out->set_nan_count(leaf.nan_count);
      out->set_positive_inf_count(leaf.positive_inf_count);
      out->set_negative_inf_count(leaf.negative_inf_count);
      if (leaf.has_finite) {
        out->set_finite_max(leaf.finite_max);
        out->set_finite_min(leaf.finite_min);
        out->set_finite_mean(leaf.finite_mean);
        out->set_finite_norm(leaf.finite_norm);
      }
    }
  }
  if (leaf.crc32.has_value()) block_->add_crc32(*leaf.crc32);
  if (leaf.xor64.has_value()) block_->add_xor64(*leaf.xor64);
  if (leaf.payload != nullptr) {
    v1::PayloadRef* const reference = block_->add_payload();
    PayloadName& name = *leaf.payload->name();
    if (name.hash().empty()) name.Set(PayloadHash(leaf.payload->bytes()));
    name.SetAnnounced();
    reference->set_hash(std::string(name.hash()));
    reference->set_size(leaf.payload->size());
    announced->push_back({reference->hash(), std::move(leaf.payload)});
    leaf.payload.reset();
    bytes_ += 24;
  }
}

uint32_t BlockWriter::StructureIndex(StructureId id) {
  const auto [it, inserted] = structure_index_.try_emplace(id, block_->structures_size());
  if (inserted) {
    block_->add_structures(definitions_.AddStructure(*dictionary_.structure(id), batch_, &bytes_));
    bytes_ += 8;
  }
  return it->second;
}

uint32_t BlockWriter::StackIndex(StackId id) {
  const auto [it, inserted] = stack_index_.try_emplace(id, block_->stacks_size());
  if (inserted) {
    block_->add_stacks(definitions_.AddStack(id, batch_, &bytes_));
    bytes_ += 8;
  }
  return it->second;
}

uint32_t BlockWriter::ParentIndex(ParentId id) {
  const auto [it, inserted] = parent_index_.try_emplace(id, block_->parents_size());
  if (inserted) {
    const std::string_view name = *dictionary_.parent(id);
    block_->add_parents(name.data(), name.size());
    bytes_ += name.size() + 2;
  }
  return it->second;
}

uint32_t BlockWriter::ShapeIndex(std::span<const int64_t> shape) {
  const auto [it, inserted] =
      shape_index_.try_emplace(absl::InlinedVector<int64_t, 6>(shape.begin(), shape.end()), block_->shapes_size());
  if (inserted) {
    v1::Shape* const out = block_->add_shapes();
    for (int64_t dim : shape) out->add_dims(dim);
    bytes_ += 4 + 3 * shape.size();
  }
  return it->second;
}

}  // namespace msprobe::core
