#include "server/format/storage/fragment_decoder.h"

#include <cmath>
#include <utility>

#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

class Decoder {
 public:
  Decoder(const v1::Block& block, FragmentColumns at, const absl::flat_hash_map<uint32_t, int>& non_finite,
          ProducerNames name_producer)
      : block_(block), at_(at), non_finite_(non_finite), name_producer_(name_producer) {}

  void Decode(const v1::Node& node, v1::Value& out) {
    switch (node.kind_case()) {
      case v1::Node::kList: {
        auto* items = out.mutable_list()->mutable_items();
        items->Reserve(node.list().items_size());
        for (const v1::Node& item : node.list().items()) Decode(item, *items->Add());
        return;
      }
      case v1::Node::kDict: {
        auto* entries = out.mutable_dict()->mutable_entries();
        entries->Reserve(node.dict().entries_size());
        for (const v1::Node::Entry& entry : node.dict().entries()) {
          v1::Value::Entry* added = entries->Add();
          added->set_key(entry.key());
          Decode(entry.value(), *added->mutable_value());
        }
        return;
      }
      case v1::Node::kTensor:
        DecodeLeaf(node.tensor(), *out.mutable_tensor());
        return;
      case v1::Node::kSlot:
        DecodeSlot(node.slot(), out);
        return;
      case v1::Node::KIND_NOT_SET:
        out.set_none(true);
        return;
    }
  }

 private:
  void DecodeSlot(v1::Node::Slot slot, v1::Value& out) {
    switch (slot) {
      case v1::Node::BOOLEAN:
        out.set_boolean(block_.booleans(at_.booleans++));
        return;
      case v1::Node::INTEGER:
        out.set_integer(block_.integers(at_.integers++));
        return;
      case v1::Node::FLOAT:
        out.set_real(block_.floats(at_.floats++));
        return;
      case v1::Node::STRING:
        out.set_text(block_.strings(at_.strings++));
        return;
      case v1::Node::JSON:
        out.set_json(block_.strings(at_.strings++));
        return;
      default:
        out.set_none(true);
    }
  }

  void DecodeLeaf(const v1::Node::TensorSlot& slot, v1::TensorLeaf& leaf) {
    leaf.set_type(slot.type());
    leaf.set_dtype(DTypeName(slot));
    leaf.set_device(slot.device());
    leaf.set_requires_grad(slot.requires_grad());
    leaf.set_attributes_json(slot.attributes_json());
    *leaf.mutable_shape() = block_.shapes(block_.shape(at_.leaf)).dims();
    const uint32_t flags = block_.leaf_flags(at_.leaf);
    if (TakesInteger(flags)) DecodeInteger(slot.dtype(), leaf);
    if (TakesNarrow(flags)) {
      const int start = static_cast<int>(at_.narrow++) * 5;
      SetFive(leaf, [&](int i) { return static_cast<double>(block_.narrow(start + i)); });
    }
    if (TakesWide(flags)) {
      const int start = static_cast<int>(at_.wide++) * 5;
      SetFive(leaf, [&](int i) { return block_.wide(start + i); });
    }
    if (flags & v1::LEAF_IMPORTED) ClearUnknown(leaf);
    if (flags & v1::LEAF_STATISTICS) leaf.set_zero_count(block_.zero_count(at_.statistics++));
    if (flags & v1::LEAF_CRC32) leaf.set_crc32(block_.crc32(at_.crc32++));
    if (flags & v1::LEAF_XOR) leaf.set_xor64(block_.xor64(at_.xor64++));
    if (flags & v1::LEAF_PAYLOAD) *leaf.mutable_payload() = block_.payload(at_.payload++);
    if (auto found = non_finite_.find(at_.leaf); found != non_finite_.end()) {
      SetNonFinite(block_.non_finite(found->second), leaf);
    }
    if (block_.edge_size() != 0 && block_.edge(at_.leaf) != v1::EDGE_UNKNOWN) DecodeEdge(leaf);
    ++at_.leaf;
  }

  void DecodeEdge(v1::TensorLeaf& leaf) {
    const uint32_t kind = block_.edge(at_.leaf);
    if (!NamesProducer(kind)) return leaf.mutable_edge()->set_kind(v1::EDGE_OUTSIDE);
    const int at = static_cast<int>(at_.producers++);
    if (!v1::EdgeKind_IsValid(static_cast<int>(kind))) return;
    v1::Edge& edge = *leaf.mutable_edge();
    name_producer_(at_.ordinal - static_cast<uint64_t>(block_.edge_distance(at)), block_.edge_leaf(at), edge);
    if (edge.record().empty()) return leaf.clear_edge();
    edge.set_kind(static_cast<v1::EdgeKind>(kind));
  }

  template <typename Get>
  void SetFive(v1::TensorLeaf& leaf, Get get) {
    leaf.mutable_max()->set_real(get(0));
    leaf.mutable_min()->set_real(get(1));
    leaf.set_mean(get(2));
    leaf.set_norm(get(3));
    leaf.set_variance(get(4));
  }

  void DecodeInteger(v1::DType dtype, v1::TensorLeaf& leaf) {
    const int at = static_cast<int>(at_.integer++);
    const bool is_unsigned_64 = (dtype == v1::DTYPE_OTHER ? DTypeOfName(leaf.dtype()) : dtype) == v1::DTYPE_UINT64;
    auto set = [&](v1::TensorLeaf::Number& number, int64_t value) {
      if (dtype == v1::DTYPE_BOOL) {
        number.set_boolean(value != 0);
      } else if (is_unsigned_64) {
        number.set_unsigned_integer(static_cast<uint64_t>(value));
      } else {
        number.set_integer(value);
      }
    };
    set(*leaf.mutable_max(), block_.integer_extremes(at * 2));
    set(*leaf.mutable_min(), block_.integer_extremes(at * 2 + 1));
    leaf.set_mean(block_.integer_moments(at * 3));
    leaf.set_norm(block_.integer_moments(at * 3 + 1));
    leaf.set_variance(block_.integer_moments(at * 3 + 2));
  }

  // Clears what an import did not know (LEAF_IMPORTED).
  static void ClearUnknown(v1::TensorLeaf& leaf) {
    leaf.clear_variance();
    const double max = leaf.max().real();
    const double min = leaf.min().real();
    if (std::isnan(max)) return;
    const bool opposite_infinities = std::isinf(max) && std::isinf(min) && max != min;
    if (std::isnan(leaf.mean()) && !opposite_infinities) leaf.clear_mean();
    if (std::isnan(leaf.norm())) leaf.clear_norm();
  }

  static void SetNonFinite(const v1::NonFinite& from, v1::TensorLeaf& leaf) {
    leaf.set_nan_count(from.nan_count());
    leaf.set_positive_inf_count(from.positive_inf_count());
    leaf.set_negative_inf_count(from.negative_inf_count());
    if (from.has_finite_max()) leaf.set_finite_max(from.finite_max());
    if (from.has_finite_min()) leaf.set_finite_min(from.finite_min());
    if (from.has_finite_mean()) leaf.set_finite_mean(from.finite_mean());
    if (from.has_finite_norm()) leaf.set_finite_norm(from.finite_norm());
  }

  const v1::Block& block_;
  FragmentColumns at_;
  const absl::flat_hash_map<uint32_t, int>& non_finite_;
  const ProducerNames name_producer_;
};

}  // namespace

std::string DTypeName(const v1::Node::TensorSlot& slot) {
  if (slot.dtype() == v1::DTYPE_OTHER || slot.dtype() == v1::DTYPE_UNSPECIFIED || !v1::DType_IsValid(slot.dtype())) {
    return slot.dtype_name();
  }
  const std::string_view name = TorchDTypeName(slot.dtype());
  constexpr size_t kPrefix = sizeof("torch.") - 1;
  return std::string(slot.type() == "numpy.ndarray" ? name.substr(kPrefix) : name);
}

void DecodeFields(const v1::Structure& structure, const v1::Block& block, FragmentColumns start,
                  const absl::flat_hash_map<uint32_t, int>& non_finite, ProducerNames name_producer,
                  v1::Value& fields) {
  fields.mutable_dict();
  if (structure.has_fields()) Decoder(block, start, non_finite, name_producer).Decode(structure.fields(), fields);
}

void MergeValue(v1::Value& target, v1::Value&& addition) {
  if (target.has_dict() && addition.has_dict()) {
    auto* entries = target.mutable_dict()->mutable_entries();
    // The usual case adds new keys only; the number of keys is small.
    for (v1::Value::Entry& entry : *addition.mutable_dict()->mutable_entries()) {
      v1::Value::Entry* known = nullptr;
      for (v1::Value::Entry& candidate : *entries) {
        if (candidate.key() == entry.key()) known = &candidate;
      }
      if (known == nullptr) {
        *entries->Add() = std::move(entry);
      } else {
        MergeValue(*known->mutable_value(), std::move(*entry.mutable_value()));
      }
    }
    return;
  }
  if (target.has_list() && addition.has_list()) {
    auto* items = target.mutable_list()->mutable_items();
    for (int i = 0; i < addition.list().items_size(); ++i) {
      v1::Value& item = *addition.mutable_list()->mutable_items(i);
      if (i < items->size()) {
        MergeValue(*items->Mutable(i), std::move(item));
      } else {
        *items->Add() = std::move(item);
      }
    }
    return;
  }
  if (addition.kind_case() == v1::Value::kNone && target.kind_case() != v1::Value::KIND_NOT_SET) return;
  target = std::move(addition);
}

}  // namespace msprobe::server
