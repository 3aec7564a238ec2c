#include "server/format/storage/scripted_block.h"

#include <xxhash.h>

namespace msprobe::server {

v1::Structure TensorStructure(const std::string& name, v1::RecordKind kind, const std::vector<std::string>& fields,
                              v1::Direction direction) {
  v1::Structure structure;
  structure.set_name(name);
  structure.set_kind(kind);
  structure.set_direction(direction);
  v1::Node::Dict* dict = structure.mutable_fields()->mutable_dict();
  for (const std::string& field : fields) {
    v1::Node::Entry* entry = dict->add_entries();
    entry->set_key(field);
    v1::Node::TensorSlot* slot = entry->mutable_value()->mutable_list()->add_items()->mutable_tensor();
    slot->set_type("torch.Tensor");
    slot->set_dtype(v1::DTYPE_FLOAT32);
    slot->set_device("cpu");
  }
  return structure;
}

uint64_t IdOf(const std::string& bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
uint64_t IdOf(const v1::Structure& structure) { return IdOf(structure.SerializeAsString()); }

BlockScript& BlockScript::Fragment(const v1::Structure& structure, uint32_t count, uint64_t ordinal, uint32_t flags,
                                   const std::vector<float>& values, const std::string& hash, uint64_t size) {
  block_.add_structure(static_cast<uint32_t>(block_.structures_size()));
  block_.add_structures(IdOf(structure));
  block_.add_count(count);
  block_.add_ordinal_delta(static_cast<int64_t>(ordinal - last_ordinal_));
  last_ordinal_ = ordinal;
  block_.add_fragment_flags(flags);
  block_.add_stack(0);
  block_.add_parent(0);
  for (float value : values) {
    block_.add_shape(0);
    block_.add_leaf_flags(v1::LEAF_STATISTICS | (hash.empty() ? 0 : v1::LEAF_PAYLOAD));
    for (float number : {value, -value, 0.f, value, 1.f}) block_.add_narrow(number);
    block_.add_zero_count(0);
    if (hash.empty()) continue;
    v1::PayloadRef* payload = block_.add_payload();
    payload->set_hash(hash);
    payload->set_size(size);
  }
  return *this;
}

BlockScript& BlockScript::Parent(const std::string& name) {
  block_.add_parents(name);
  block_.set_parent(block_.parent_size() - 1, static_cast<uint32_t>(block_.parents_size()));
  return *this;
}

BlockScript& BlockScript::Stack(uint64_t id) {
  block_.add_stacks(id);
  block_.set_stack(block_.stack_size() - 1, static_cast<uint32_t>(block_.stacks_size()));
  return *this;
}

BlockScript& BlockScript::Edge(int leaf, v1::EdgeKind kind, int64_t distance, uint32_t producer_leaf) {
  while (block_.edge_size() < block_.leaf_flags_size()) block_.add_edge(v1::EDGE_UNKNOWN);
  block_.set_edge(leaf, kind);
  if (kind < v1::EDGE_SAME) return *this;
  block_.add_edge_distance(distance);
  block_.add_edge_leaf(producer_leaf);
  return *this;
}

}  // namespace msprobe::server
