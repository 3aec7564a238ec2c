#include "server/importer/entry_parser.h"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/json/json_writer.h"
#include "server/format/tensor_file/widen.h"
#include "server/importer/json_file.h"

namespace msprobe::server {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMaxRank = 64;

const rapidjson::Value* Member(const rapidjson::Value& object, const char* name) {
  auto it = object.FindMember(name);
  return it == object.MemberEnd() ? nullptr : &it->value;
}

bool IsTyped(const rapidjson::Value& object) {
  // Values of a user's dict are objects, lists or null, never a bare text.
  const rapidjson::Value* type = Member(object, "type");
  return type != nullptr && type->IsString();
}

bool IsTensor(const rapidjson::Value& object) {
  return IsTyped(object) && object.HasMember("dtype") && object.HasMember("shape");
}

bool FitsFloat(double value) { return std::isnan(value) || static_cast<double>(static_cast<float>(value)) == value; }

// The bytes of a 0-D element whose value stands in place of its checksum.
uint64_t BytesOf(v1::DType dtype, double value) {
  switch (dtype) {
    case v1::DTYPE_FLOAT64:
      return std::bit_cast<uint64_t>(value);
    case v1::DTYPE_FLOAT32:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
    default:
      break;
  }
  const uint32_t codes = DTypeSize(dtype) == 1 ? 256 : 65536;
  for (uint32_t code = 0; code < codes; ++code) {
    const double candidate = WidenToFloat(dtype, static_cast<uint16_t>(code));
    if (candidate == value ? std::signbit(candidate) == std::signbit(value)
                           : std::isnan(candidate) && std::isnan(value)) {
      return code;
    }
  }
  return 0;
}

uint64_t Masked(v1::DType dtype, uint64_t word) {
  const size_t size = DTypeSize(dtype);
  return size == 0 || size >= 8 ? word : word & ((uint64_t{1} << (8 * size)) - 1);
}

std::optional<uint64_t> Hex(std::string_view text) {
  uint64_t value = 0;
  if (text.empty() || text.size() > 16) return std::nullopt;
  for (char c : text) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(digit);
  }
  return value;
}

// At least these are there, whatever the true counts were.
void SetLowerBounds(double max, double min, ImportedLeaf& leaf) {
  v1::NonFinite bounds;
  if (std::isnan(max) || std::isnan(min)) bounds.set_nan_count(1);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (max == kInfinity || min == kInfinity) bounds.set_positive_inf_count(1);
  if (max == -kInfinity || min == -kInfinity) bounds.set_negative_inf_count(1);
  if (bounds.nan_count() + bounds.positive_inf_count() + bounds.negative_inf_count() != 0) leaf.non_finite = bounds;
}

}  // namespace

absl::Status EntryParser::Expected(std::string_view field, std::string_view what, const rapidjson::Value& got) const {
  return absl::InvalidArgumentError(
      Cat(file_, ": ", where_, field.empty() ? "" : ".", field, ": ", what, " is expected, not ", Describe(got)));
}

absl::StatusOr<ImportedFields> EntryParser::Parse(std::string_view full_name, const rapidjson::Value& entry,
                                                  bool wrap) {
  where_ = Cat("data.", full_name);
  ImportedFields fields;
  out_ = &fields;
  absl::Status status;
  if (wrap) {
    v1::Node::Entry* only = fields.fields.mutable_dict()->add_entries();
    only->set_key("debug");
    status = Parse(entry, *only->mutable_value());
  } else if (!entry.IsObject() || IsTyped(entry)) {
    status = Expected("", "an object of fields (input_args, output, ...)", entry);
  } else {
    status = Parse(entry, fields.fields);
  }
  out_ = nullptr;
  if (!status.ok()) return status;
  return fields;
}

void EntryParser::PutText(v1::Node& node, v1::Node::Slot slot, std::string text) {
  node.set_slot(slot);
  out_->strings.push_back(std::move(text));
}

void EntryParser::PutJson(v1::Node& node, const rapidjson::Value& value) {
  JsonWriter writer(false);
  value.Accept(writer);
  PutText(node, v1::Node::JSON, writer.Take());
}

absl::Status EntryParser::Parse(const rapidjson::Value& value, v1::Node& node) {
  const size_t depth = where_.size();
  if (value.IsNull()) {
    node.set_slot(v1::Node::NONE);
  } else if (value.IsArray()) {
    node.mutable_list();
    for (rapidjson::SizeType i = 0; i < value.Size(); ++i) {
      where_ += Cat(".", i);
      if (absl::Status status = Parse(value[i], *node.mutable_list()->add_items()); !status.ok()) return status;
      where_.resize(depth);
    }
  } else if (!value.IsObject()) {
    PutJson(node, value);
  } else if (IsTensor(value)) {
    return ParseTensor(value, *node.mutable_tensor());
  } else if (IsTyped(value)) {
    const std::string_view type = TextOf(*Member(value, "type"));
    const rapidjson::Value* content = Member(value, "value");
    const bool simple = content != nullptr && value.MemberCount() == 2;
    if (simple && type == "bool" && content->IsBool()) {
      node.set_slot(v1::Node::BOOLEAN);
      out_->booleans.push_back(content->GetBool());
    } else if (simple && type == "int" && content->IsInt64()) {
      node.set_slot(v1::Node::INTEGER);
      out_->integers.push_back(content->GetInt64());
    } else if (simple && type == "float" && content->IsDouble()) {
      node.set_slot(v1::Node::FLOAT);
      out_->floats.push_back(content->GetDouble());
    } else if (simple && type == "str" && content->IsString()) {
      PutText(node, v1::Node::STRING, std::string(TextOf(*content)));
    } else {
      PutJson(node, value);
    }
  } else {
    node.mutable_dict();
    for (const auto& member : value.GetObject()) {
      where_ += Cat(".", TextOf(member.name));
      v1::Node::Entry* entry = node.mutable_dict()->add_entries();
      entry->set_key(std::string(TextOf(member.name)));
      if (absl::Status status = Parse(member.value, *entry->mutable_value()); !status.ok()) return status;
      where_.resize(depth);
    }
  }
  return absl::OkStatus();
}

absl::Status EntryParser::ParseTensor(const rapidjson::Value& object, v1::Node::TensorSlot& slot) {
  const rapidjson::Value& dtype_name = *Member(object, "dtype");
  const rapidjson::Value& shape = *Member(object, "shape");
  if (!dtype_name.IsString()) return Expected("dtype", "the name of a type", dtype_name);
  slot.set_type(std::string(TextOf(*Member(object, "type"))));
  const std::string dtype_text(TextOf(dtype_name));
  const v1::DType dtype = DTypeOfName(dtype_text);
  // Where the type's own name prints otherwise (MindSpore's Float32), the name is kept as text.
  const std::string_view printed = TorchDTypeName(dtype);
  const bool own_name =
      slot.type() == "numpy.ndarray" ? !printed.empty() && printed.substr(6) == dtype_text : printed == dtype_text;
  slot.set_dtype(own_name ? dtype : v1::DTYPE_OTHER);
  if (!own_name) slot.set_dtype_name(dtype_text);

  ImportedLeaf leaf;
  if (!shape.IsArray() || shape.Size() > kMaxRank) return Expected("shape", "a list of up to 64 sizes", shape);
  for (const rapidjson::Value& dim : shape.GetArray()) {
    if (!dim.IsInt64() || dim.GetInt64() < 0) return Expected("shape", "a size from 0", dim);
    leaf.shape.push_back(dim.GetInt64());
  }
  if (const rapidjson::Value* grad = Member(object, "requires_grad")) {
    if (!grad->IsBool()) return Expected("requires_grad", "true or false", *grad);
    slot.set_requires_grad(grad->GetBool());
  }
  if (absl::Status status = ParseStatistics(object, dtype, leaf); !status.ok()) return status;
  if (const rapidjson::Value* md5 = Member(object, "md5")) {
    if (absl::Status status = ParseChecksum(*md5, dtype, leaf); !status.ok()) return status;
  }

  rapidjson::Document attributes(rapidjson::kObjectType);
  for (const auto& member : object.GetObject()) {
    const std::string_view name = TextOf(member.name);
    static constexpr std::string_view kKnown[] = {"type", "dtype", "shape",         "Max",       "Min",     "Mean",
                                                  "Norm", "md5",   "requires_grad", "data_name", "extended"};
    bool known = false;
    for (std::string_view other : kKnown) known = known || name == other;
    if (known) continue;
    attributes.AddMember(rapidjson::Value(member.name, attributes.GetAllocator()),
                         rapidjson::Value(member.value, attributes.GetAllocator()), attributes.GetAllocator());
  }
  if (const rapidjson::Value* extended = Member(object, "extended")) {
    if (absl::Status status = ParseExtended(*extended, dtype, leaf); !status.ok()) return status;
    if (const rapidjson::Value* device = extended->IsObject() ? Member(*extended, "device") : nullptr;
        device != nullptr && device->IsString()) {
      slot.set_device(std::string(TextOf(*device)));
    }
  }
  if (const rapidjson::Value* data_name = Member(object, "data_name")) {
    if (!data_name->IsString()) return Expected("data_name", "a file's name", *data_name);
    if (find_payload_) {
      absl::StatusOr<std::optional<ImportedPayload>> payload =
          find_payload_(std::string(TextOf(*data_name)), dtype, leaf.shape);
      if (!payload.ok()) return payload.status();
      if (payload->has_value()) {
        leaf.flags |= v1::LEAF_PAYLOAD;
        leaf.payload = (*payload)->ref;
        slot.set_device((*payload)->device);
        if (IsQuantized(dtype) && !attributes.HasMember("q_scale")) {
          attributes.AddMember("q_scale", (*payload)->scale, attributes.GetAllocator());
          attributes.AddMember("q_zero_point", (*payload)->zero_point, attributes.GetAllocator());
        }
      }
    }
  }
  if (attributes.MemberCount() != 0) {
    JsonWriter writer(false);
    attributes.Accept(writer);
    slot.set_attributes_json(writer.Take());
  }
  out_->leaves.push_back(std::move(leaf));
  return absl::OkStatus();
}

absl::Status EntryParser::ParseStatistics(const rapidjson::Value& object, v1::DType dtype, ImportedLeaf& leaf) {
  static constexpr const char* kNames[] = {"Max", "Min", "Mean", "Norm"};
  const rapidjson::Value* values[4];
  for (int i = 0; i < 4; ++i) {
    values[i] = Member(object, kNames[i]);
    if (values[i] == nullptr) continue;
    seen_.statistics = true;
    const bool right = values[i]->IsNull() || values[i]->IsNumber() || (i < 2 && values[i]->IsBool());
    if (!right) return Expected(kNames[i], i < 2 ? "a number, a bool or null" : "a number or null", *values[i]);
    if (values[i]->IsNull()) values[i] = nullptr;
  }
  if (values[0] == nullptr || values[1] == nullptr) return absl::OkStatus();
  leaf.flags |= v1::LEAF_STATISTICS | v1::LEAF_IMPORTED;
  leaf.floating[2] = values[2] == nullptr ? kNan : values[2]->GetDouble();
  leaf.floating[3] = values[3] == nullptr ? kNan : values[3]->GetDouble();
  leaf.floating[4] = kNan;
  const auto is_whole = [](const rapidjson::Value& value) {
    return value.IsBool() || value.IsInt64() || value.IsUint64();
  };
  if (IsInteger(dtype) && is_whole(*values[0]) && is_whole(*values[1])) {
    leaf.flags |= v1::LEAF_INTEGER;
    for (int i = 0; i < 2; ++i) {
      leaf.extremes[i] = values[i]->IsBool()    ? values[i]->GetBool()
                         : values[i]->IsInt64() ? values[i]->GetInt64()
                                                : static_cast<int64_t>(values[i]->GetUint64());
    }
    return absl::OkStatus();
  }
  bool wide = dtype == v1::DTYPE_FLOAT64;
  for (int i = 0; i < 2; ++i) {
    leaf.floating[i] = values[i]->IsBool() ? values[i]->GetBool() : values[i]->GetDouble();
  }
  for (int i = 0; i < 4; ++i) wide = wide || !FitsFloat(leaf.floating[i]);
  if (wide) leaf.flags |= v1::LEAF_WIDE;
  SetLowerBounds(leaf.floating[0], leaf.floating[1], leaf);
  return absl::OkStatus();
}

// What our own extended export adds; it knows all, so the leaf is no longer marked as imported.
absl::Status EntryParser::ParseExtended(const rapidjson::Value& extended, v1::DType dtype, ImportedLeaf& leaf) {
  if (!extended.IsObject()) return Expected("extended", "an object", extended);
  const auto number = [&](const rapidjson::Value& object, const char* name) -> std::optional<double> {
    const rapidjson::Value* value = Member(object, name);
    if (value == nullptr || !value->IsNumber()) return std::nullopt;
    return value->GetDouble();
  };
  const auto count = [&](const char* name) -> uint64_t {
    const rapidjson::Value* value = Member(extended, name);
    return value != nullptr && value->IsUint64() ? value->GetUint64() : 0;
  };
  for (const char* name : {"crc32", "xor64"}) {
    const rapidjson::Value* value = Member(extended, name);
    if (value == nullptr) continue;
    if (!value->IsString()) return Expected("extended", "hexadecimal digits as checksum", *value);
    const bool wide = TextOf(*value).starts_with("0x");
    const std::optional<uint64_t> word = Hex(TextOf(*value).substr(wide ? 2 : 0));
    if (!word) return Expected("extended", "hexadecimal digits as checksum", *value);
    leaf.flags |= wide ? v1::LEAF_XOR : v1::LEAF_CRC32;
    if (wide) {
      leaf.xor64 = *word;
    } else {
      leaf.crc32 = static_cast<uint32_t>(*word);
    }
  }
  const std::optional<double> variance = number(extended, "Variance");
  if (!variance) return absl::OkStatus();
  if ((leaf.flags & v1::LEAF_STATISTICS) == 0) {
    // Left null by default (8-bit floats): only here.
    const SeenChecksums before = seen_;
    if (absl::Status status = ParseStatistics(extended, dtype, leaf); !status.ok()) return status;
    seen_ = before;
    if ((leaf.flags & v1::LEAF_STATISTICS) == 0) return absl::OkStatus();
  }
  leaf.flags &= ~static_cast<uint32_t>(v1::LEAF_IMPORTED);
  leaf.floating[2] = number(extended, "Mean").value_or(leaf.floating[2]);
  leaf.floating[3] = number(extended, "Norm").value_or(leaf.floating[3]);
  leaf.floating[4] = *variance;
  for (double value : leaf.floating) {
    if ((leaf.flags & v1::LEAF_INTEGER) == 0 && !FitsFloat(value)) leaf.flags |= v1::LEAF_WIDE;
  }
  leaf.zero_count = count("zero_count");
  v1::NonFinite counts;
  counts.set_nan_count(count("nan_count"));
  counts.set_positive_inf_count(count("positive_inf_count"));
  counts.set_negative_inf_count(count("negative_inf_count"));
  leaf.non_finite.reset();
  if (counts.nan_count() + counts.positive_inf_count() + counts.negative_inf_count() == 0) return absl::OkStatus();
  if (const rapidjson::Value* finite = Member(extended, "finite"); finite != nullptr && finite->IsObject()) {
    if (const auto value = number(*finite, "Max")) counts.set_finite_max(*value);
    if (const auto value = number(*finite, "Min")) counts.set_finite_min(*value);
    if (const auto value = number(*finite, "Mean")) counts.set_finite_mean(*value);
    if (const auto value = number(*finite, "Norm")) counts.set_finite_norm(*value);
  }
  leaf.non_finite = counts;
  return absl::OkStatus();
}

absl::Status EntryParser::ParseChecksum(const rapidjson::Value& value, v1::DType dtype, ImportedLeaf& leaf) {
  if (value.IsNull()) return absl::OkStatus();
  if (value.IsNumber()) {
    seen_.xor64 = true;
    leaf.flags |= v1::LEAF_XOR;
    leaf.xor64 = BytesOf(dtype, value.GetDouble());
    return absl::OkStatus();
  }
  constexpr std::string_view kWhat = "8 hexadecimal digits (md5), 0x and 16 (xor), or a 0-D tensor's value";
  if (!value.IsString()) return Expected("md5", kWhat, value);
  const std::string_view text = TextOf(value);
  const bool is_xor = text.starts_with("0x");
  const std::optional<uint64_t> word = Hex(text.substr(is_xor ? 2 : 0));
  if (!word || text.size() != (is_xor ? 18u : 8u)) return Expected("md5", kWhat, value);
  if (is_xor) {
    seen_.xor64 = true;
    leaf.flags |= v1::LEAF_XOR;
    leaf.xor64 = leaf.shape.empty() ? Masked(dtype, *word) : *word;
  } else {
    seen_.crc32 = true;
    leaf.flags |= v1::LEAF_CRC32;
    leaf.crc32 = static_cast<uint32_t>(*word);
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
