#include "agent/core/transport/packing/packer.h"

#include <algorithm>
#include <utility>

#include "agent/core/queue/fragment_digest.h"
#include "agent/core/queue/fragment_queue.h"
#include "agent/core/responses/response_detector.h"

namespace msprobe::core {
namespace {

void ClearEdges(v1::Block* block) {
  block->clear_edge();
  block->clear_edge_distance();
  block->clear_edge_leaf();
}

// Drops scalars, or of them only tokens of replies. Of scalars, these alone have strings.
void DropScalars(bool tokens_only, v1::Batch* batch) {
  auto& items = *batch->mutable_items();
  const auto is_dropped = [tokens_only](const v1::Item& item) {
    return item.has_scalars() && (!tokens_only || item.scalars().strings_size() > 0);
  };
  items.erase(std::remove_if(items.begin(), items.end(), is_dropped), items.end());
  auto& definitions = *batch->mutable_definitions();
  const auto defines_dropped = [tokens_only](const v1::Definition& definition) {
    v1::Structure structure;
    return definition.has_structure() && structure.ParseFromString(definition.structure()) &&
           structure.kind() == v1::RECORD_SCALARS && (!tokens_only || structure.name() == kResponse);
  };
  definitions.erase(std::remove_if(definitions.begin(), definitions.end(), defines_dropped), definitions.end());
}

}  // namespace

std::string Plainer(std::string_view batch, KnownColumns known) {
  v1::AgentMessage message;
  // What a dead process left may be no batch: the server says so.
  if (!message.ParseFromArray(batch.data(), static_cast<int>(batch.size()))) return std::string(batch);
  v1::Batch& batch_message = *message.mutable_batch();
  if (!known.scalars || !known.responses) DropScalars(known.scalars, &batch_message);
  for (v1::Item& item : *batch_message.mutable_items()) {
    if (item.has_marker()) continue;
    v1::Block& block = item.has_block() ? *item.mutable_block() : *item.mutable_scalars();
    if (!known.digests) block.clear_digest();
    if (!known.edges) ClearEdges(&block);
  }
  return message.SerializeAsString();
}

Packer::Packer(std::string session, const Dictionary* dictionary)
    : session_(std::move(session)),
      dictionary_(dictionary),
      definitions_(dictionary),
      block_(dictionary, &definitions_),
      batch_(message_.mutable_batch()) {}

bool Packer::Add(const Fragment& fragment, std::vector<Leaf>& leaves) {
  const Dictionary::StructureEntry* const structure = dictionary_->structure(fragment.structure);
  const std::string_view* const parent = dictionary_->parent(fragment.parent);
  const Dictionary::Slots given{.tensors = static_cast<uint32_t>(leaves.size()),
                                .integers = static_cast<uint32_t>(fragment.integers.size()),
                                .floats = static_cast<uint32_t>(fragment.floats.size()),
                                .booleans = static_cast<uint32_t>(fragment.booleans.size()),
                                .strings = static_cast<uint32_t>(fragment.strings.size())};
  const size_t size = EncodedSize(fragment);
  // Columns hold no ends: one fragment with a value too many would shift all that follow.
  if (structure == nullptr || (fragment.stack != 0 && !dictionary_->has_stack(fragment.stack)) ||
      (fragment.parent != 0 && parent == nullptr) || given != structure->slots || size > kLargestFragment ||
      (verifies_ && fragment.digest != 0 && fragment.digest != DigestOf(fragment, *dictionary_))) {
    uint64_t payloads = 0;
    for (Leaf& leaf : leaves) payloads += leaf.payload != nullptr ? 1 : 0;
    for (Leaf& leaf : leaves) leaf.payload.reset();
    AddGap(fragment.step, payloads);
    return false;
  }
  if (!packed_.first_step.has_value()) packed_.first_step = fragment.step;
  if (structure->is_scalars) {
    block_.OpenScalars(batch_, fragment.step);
    bytes_ += block_.Add(fragment, leaves, &packed_.payloads);
    block_.Close();
    ++packed_.fragments;
    return true;
  }
  if (!block_.IsOpen(fragment.step, fragment.token)) {
    block_.Open(batch_, fragment.step, fragment.token);
  }
  bytes_ += block_.Add(fragment, leaves, &packed_.payloads);
  ++packed_.fragments;
  return true;
}

void Packer::AddGap(uint32_t step, uint64_t payloads) {
  v1::Marker marker;
  marker.mutable_gap()->set_step(step);
  marker.mutable_gap()->set_fragments(1);
  marker.mutable_gap()->set_payloads(payloads);
  marker.mutable_gap()->set_reason(v1::Marker::Gap::FAULT);
  AddMarker(marker, step);
}

void Packer::AddMarker(const v1::Marker& marker, std::optional<uint32_t> step) {
  if (!packed_.first_step.has_value()) packed_.first_step = step;
  *batch_->add_items()->mutable_marker() = marker;
  block_.Close();
  bytes_ += marker.ByteSizeLong();
}

PackedBatch Packer::Cut(uint64_t last_entry) {
  for (v1::Item& item : *batch_->mutable_items()) {
    if (item.has_marker()) continue;
    v1::Block& block = item.has_block() ? *item.mutable_block() : *item.mutable_scalars();
    bool all_zero = true;
    for (uint32_t thread : block.thread()) all_zero = all_zero && thread == 0;
    if (all_zero) block.clear_thread();
    const auto& edges = block.edge();
    if (std::all_of(edges.begin(), edges.end(), [](uint32_t edge) { return edge == 0; })) ClearEdges(&block);
  }
  batch_->set_session(session_);
  batch_->set_batch_sequence(next_sequence_);
  packed_.sequence = next_sequence_++;
  packed_.last_entry = last_entry;
  packed_.bytes = message_.SerializeAsString();
  message_.Clear();
  batch_ = message_.mutable_batch();
  block_.Close();
  bytes_ = 0;
  return std::exchange(packed_, PackedBatch());
}

}  // namespace msprobe::core
