#include "server/format/storage/placed_value.h"

#include <algorithm>

namespace msprobe::server {
namespace {

using Kind = PlacedValue::Kind;

class Placer {
 public:
  Placer(const v1::Block& block, FragmentColumns at, const BlockPlaces& places)
      : block_(block), at_(at), places_(places) {}

  PlacedValue Place(const v1::Node& node) {
    PlacedValue value;
    switch (node.kind_case()) {
      case v1::Node::kList:
        value.kind = Kind::kList;
        value.items.reserve(static_cast<size_t>(node.list().items_size()));
        for (const v1::Node& item : node.list().items()) value.items.emplace_back("", Place(item));
        break;
      case v1::Node::kDict:
        value.kind = Kind::kDict;
        value.items.reserve(static_cast<size_t>(node.dict().entries_size()));
        for (const v1::Node::Entry& entry : node.dict().entries()) {
          value.items.emplace_back(entry.key(), Place(entry.value()));
        }
        break;
      case v1::Node::kTensor:
        value.kind = Kind::kTensor;
        value.slot = &node.tensor();
        value.place = places_.leaves + at_.leaf;
        value.ordinal = at_.ordinal;
        value.has_payload = (block_.leaf_flags(static_cast<int>(at_.leaf)) & v1::LEAF_PAYLOAD) != 0;
        ++at_.leaf;
        break;
      case v1::Node::kSlot:
        PlaceSlot(node.slot(), value);
        break;
      case v1::Node::KIND_NOT_SET:
        break;
    }
    return value;
  }

 private:
  void PlaceSlot(v1::Node::Slot slot, PlacedValue& value) {
    switch (slot) {
      case v1::Node::BOOLEAN:
        value.kind = Kind::kBoolean;
        value.boolean = block_.booleans(static_cast<int>(at_.booleans++));
        return;
      case v1::Node::INTEGER:
        value.kind = Kind::kInteger;
        value.place = places_.integers + at_.integers++;
        return;
      case v1::Node::FLOAT:
        value.kind = Kind::kReal;
        value.place = places_.floats + at_.floats++;
        return;
      case v1::Node::STRING:
      case v1::Node::JSON:
        value.kind = slot == v1::Node::STRING ? Kind::kText : Kind::kJson;
        value.text = &block_.strings(static_cast<int>(at_.strings++));
        return;
      default:
        return;
    }
  }

  const v1::Block& block_;
  FragmentColumns at_;
  const BlockPlaces& places_;
};

}  // namespace

PlacedValue PlaceFields(const v1::Structure& structure, const v1::Block& block, FragmentColumns start,
                        const BlockPlaces& places) {
  if (structure.has_fields()) return Placer(block, start, places).Place(structure.fields());
  PlacedValue none;
  none.kind = Kind::kDict;
  return none;
}

void MergePlaced(PlacedValue& target, PlacedValue&& addition) {
  if (target.kind == Kind::kDict && addition.kind == Kind::kDict) {
    for (auto& [key, value] : addition.items) {
      // Of equal keys the last, as in MergeValue.
      const auto known = std::find_if(target.items.rbegin(), target.items.rend(),
                                      [&, name = key](const auto& item) { return item.key == name; });
      if (known == target.items.rend()) {
        target.items.emplace_back(key, std::move(value));
      } else {
        MergePlaced(known->value, std::move(value));
      }
    }
    return;
  }
  if (target.kind == Kind::kList && addition.kind == Kind::kList) {
    for (size_t i = 0; i < addition.items.size(); ++i) {
      if (i < target.items.size()) {
        MergePlaced(target.items[i].value, std::move(addition.items[i].value));
      } else {
        target.items.push_back(std::move(addition.items[i]));
      }
    }
    return;
  }
  if (addition.kind == Kind::kNone) return;
  target = std::move(addition);
}

}  // namespace msprobe::server
