#include "agent/core/transport/packing/packer.h"

#include <utility>

#include "agent/core/content_hash.h"
#include "agent/core/queue/fragment_digest.h"
#include "agent/core/queue/fragment_queue.h"
#include "agent/core/queue/leaf_flags.h"
#include "agent/core/utf8.h"

namespace msprobe::core {

std::string WithoutDigests(std::string_view batch) {
  v1::AgentMessage message;
  // What a dead process left may be no batch: the server says so.
  if (!message.ParseFromArray(batch.data(), static_cast<int>(batch.size()))) return std::string(batch);
  for (v1::Item& item : *message.mutable_batch()->mutable_items()) {
    if (item.has_block()) item.mutable_block()->clear_digest();
  }
  return message.SerializeAsString();
}

Packer::Packer(std::string session, const Dictionary* dictionary)
    : session_(std::move(session)), dictionary_(dictionary), batch_(message_.mutable_batch()) {}

bool Packer::Add(const Fragment& fragment, std::vector<Leaf>& leaves) {
  const Dictionary::StructureEntry* const structure = dictionary_->structure(fragment.structure);
  const std::string_view* const stack = dictionary_->stack(fragment.stack);
  const std::string_view* const parent = dictionary_->parent(fragment.parent);
  const Dictionary::Slots given{.tensors = static_cast<uint32_t>(leaves.size()),
                                .integers = static_cast<uint32_t>(fragment.integers.size()),
                                .floats = static_cast<uint32_t>(fragment.floats.size()),
                                .booleans = static_cast<uint32_t>(fragment.booleans.size()),
                                .strings = static_cast<uint32_t>(fragment.strings.size())};
  const size_t size = EncodedSize(fragment);
  // Columns hold no ends: one fragment with a value too many would shift all that follow.
  if (structure == nullptr || (fragment.stack != 0 && stack == nullptr) ||
      (fragment.parent != 0 && parent == nullptr) || given != structure->slots || size > kLargestFragment ||
      (verifies_ && fragment.digest != 0 && fragment.digest != DigestOf(fragment, *dictionary_))) {
    uint64_t payloads = 0;
    for (Leaf& leaf : leaves) payloads += leaf.payload != nullptr ? 1 : 0;
    for (Leaf& leaf : leaves) leaf.payload.reset();
    AddGap(fragment.step, payloads);
    return false;
  }
  if (block_ == nullptr || block_->step() != fragment.step || block_->token() != fragment.token) {
    OpenBlock(fragment.step, fragment.token);
  }
  block_->add_structure(StructureIndex(fragment.structure, *structure));
  block_->add_count(fragment.count);
  block_->add_ordinal_delta(static_cast<int64_t>(fragment.ordinal - last_ordinal_));
  last_ordinal_ = fragment.ordinal;
  block_->add_fragment_flags(fragment.flags);
  block_->add_stack(fragment.stack == 0 ? 0 : StackIndex(fragment.stack) + 1);
  block_->add_parent(fragment.parent == 0 ? 0 : ParentIndex(fragment.parent, *parent) + 1);
  block_->add_thread(fragment.thread);
  block_->add_digest(fragment.digest != 0 ? fragment.digest : DigestOf(fragment, *dictionary_));
  for (Leaf& leaf : leaves) AddLeaf(leaf);
  for (int64_t value : fragment.integers) block_->add_integers(value);
  for (double value : fragment.floats) block_->add_floats(value);
  for (bool value : fragment.booleans) block_->add_booleans(value);
  for (std::string_view value : fragment.strings) block_->add_strings(ToUtf8(value));
  ++packed_.fragments;
  bytes_ += 28 + leaves.size() * 32 + 8 * (fragment.integers.size() + fragment.floats.size());
  for (std::string_view value : fragment.strings) bytes_ += value.size() + 2;
  return true;
}

void Packer::AddLeaf(Leaf& leaf) {
  const uint32_t index = static_cast<uint32_t>(block_->shape_size());
  block_->add_shape(ShapeIndex(leaf.shape));
  const uint32_t flags = LeafFlags(leaf);
  block_->add_leaf_flags(flags);
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
    packed_.payloads.push_back({reference->hash(), std::move(leaf.payload)});
    leaf.payload.reset();
    bytes_ += 24;
  }
}

void Packer::OpenBlock(uint32_t step, uint32_t token) {
  block_ = batch_->add_items()->mutable_block();
  block_->set_step(step);
  block_->set_token(token);
  last_ordinal_ = 0;
  structure_index_.clear();
  stack_index_.clear();
  parent_index_.clear();
  shape_index_.clear();
  if (!has_first_step_) packed_.first_step = step;
  has_first_step_ = true;
}

uint32_t Packer::StructureIndex(StructureId id, const Dictionary::StructureEntry& entry) {
  const auto [it, inserted] = structure_index_.try_emplace(id, block_->structures_size());
  if (inserted) {
    block_->add_structures(entry.hash);
    bytes_ += 8;
    if (!defined_.contains(entry.hash)) {
      v1::Definition definition;
      definition.set_id(entry.hash);
      definition.set_structure(entry.content.data(), entry.content.size());
      Define(definition);
    }
  }
  return it->second;
}

uint32_t Packer::StackIndex(StackId id) {
  const auto [it, inserted] = stack_index_.try_emplace(id, block_->stacks_size());
  if (inserted) {
    const auto [hash, unknown] = stack_hashes_.try_emplace(id, 0);
    if (unknown) {
      const v1::Definition definition = ResolvedStack(*dictionary_->stack(id));
      if (!defined_.contains(definition.id())) Define(definition);
      hash->second = definition.id();
    }
    block_->add_stacks(hash->second);
    bytes_ += 8;
  }
  return it->second;
}

v1::Definition Packer::ResolvedStack(std::string_view serialized) {
  v1::Stack given, stack;
  given.ParseFromArray(serialized.data(), static_cast<int>(serialized.size()));
  for (v1::Frame& frame : *given.mutable_frames()) {
    if (frame.source().empty()) frame.set_source(ToUtf8(source_lines_.Line(frame.path(), frame.line())));
    if (!frame.source().empty()) *stack.add_frames() = std::move(frame);
  }
  v1::Definition definition;
  definition.set_stack(SerializeDeterministic(stack));
  definition.set_id(DefinitionHash(definition.stack()));
  return definition;
}

uint32_t Packer::ParentIndex(ParentId id, std::string_view name) {
  const auto [it, inserted] = parent_index_.try_emplace(id, block_->parents_size());
  if (inserted) {
    block_->add_parents(name.data(), name.size());
    bytes_ += name.size() + 2;
  }
  return it->second;
}

uint32_t Packer::ShapeIndex(std::span<const int64_t> shape) {
  const auto [it, inserted] =
      shape_index_.try_emplace(absl::InlinedVector<int64_t, 6>(shape.begin(), shape.end()), block_->shapes_size());
  if (inserted) {
    v1::Shape* const out = block_->add_shapes();
    for (int64_t dim : shape) out->add_dims(dim);
    bytes_ += 4 + 3 * shape.size();
  }
  return it->second;
}

void Packer::Define(const v1::Definition& definition) {
  *batch_->add_definitions() = definition;
  bytes_ += definition.ByteSizeLong();
  defined_.emplace(definition.id(), definition);
}

void Packer::AddGap(uint32_t step, uint64_t payloads) {
  v1::Marker marker;
  marker.mutable_gap()->set_step(step);
  marker.mutable_gap()->set_fragments(1);
  marker.mutable_gap()->set_payloads(payloads);
  marker.mutable_gap()->set_reason(v1::Marker::Gap::FAULT);
  AddMarker(marker);
}

void Packer::AddMarker(const v1::Marker& marker) {
  *batch_->add_items()->mutable_marker() = marker;
  block_ = nullptr;
  bytes_ += marker.ByteSizeLong();
}

PackedBatch Packer::Cut(uint64_t last_entry) {
  for (v1::Item& item : *batch_->mutable_items()) {
    if (!item.has_block()) continue;
    bool all_zero = true;
    for (uint32_t thread : item.block().thread()) all_zero = all_zero && thread == 0;
    if (all_zero) item.mutable_block()->clear_thread();
  }
  batch_->set_session(session_);
  batch_->set_batch_sequence(next_sequence_);
  packed_.sequence = next_sequence_++;
  packed_.last_entry = last_entry;
  packed_.bytes = message_.SerializeAsString();
  message_.Clear();
  batch_ = message_.mutable_batch();
  block_ = nullptr;
  bytes_ = 0;
  has_first_step_ = false;
  return std::exchange(packed_, PackedBatch());
}

void Packer::CopyDefinitions(v1::Batch* batch) {
  for (StructureId id = 1; id <= dictionary_->structures(); ++id) {
    const Dictionary::StructureEntry* const entry = dictionary_->structure(id);
    if (entry == nullptr || defined_.contains(entry->hash)) continue;
    v1::Definition definition;
    definition.set_id(entry->hash);
    definition.set_structure(entry->content.data(), entry->content.size());
    defined_.emplace(definition.id(), definition);
  }
  for (StackId id = 1; id <= dictionary_->stacks(); ++id) {
    const std::string_view* const stack = dictionary_->stack(id);
    if (stack == nullptr) continue;
    const auto [hash, unknown] = stack_hashes_.try_emplace(id, 0);
    if (!unknown) continue;
    const v1::Definition definition = ResolvedStack(*stack);
    hash->second = definition.id();
    defined_.emplace(definition.id(), definition);
  }
  for (const auto& [id, definition] : defined_) *batch->add_definitions() = definition;
}

}  // namespace msprobe::core
