#include "server/importer/entry_parser.h"

#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/json/json_value.h"
#include "server/format/json/json_writer.h"
#include "server/format/tensor_file/widen.h"

namespace msprobe::server {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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

absl::Status EntryParser::Expected(std::string_view field, std::string_view what, const JsonText& got) const {
  return absl::InvalidArgumentError(
      Cat(file_, ": ", where_, field.empty() ? "" : ".", field, ": ", what, " is expected, not ", Describe(got)));
}

absl::Status EntryParser::At(const absl::Status& status) const {
  return absl::InvalidArgumentError(Cat(file_, ": ", where_, ".", StdView(status.message())));
}

absl::Status EntryParser::Malformed(const JsonCursor& json) const {
  if (json.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat(file_, ": ", StdView(json.status().message())));
}

absl::StatusOr<ImportedFields> EntryParser::Parse(std::string_view full_name, JsonCursor& entry, bool wrap) {
  where_ = Cat("data.", full_name);
  ImportedFields fields;
  out_ = &fields;
  absl::Status status;
  if (wrap) {
    v1::Node::Entry* only = fields.fields.mutable_dict()->add_entries();
    only->set_key("debug");
    status = Parse(entry, *only->mutable_value());
  } else {
    status = ParseEntry(entry, fields.fields);
  }
  out_ = nullptr;
  if (!status.ok()) return status;
  return fields;
}

absl::Status EntryParser::ParseEntry(JsonCursor& json, v1::Node& node) {
  const JsonCursor::Place begin = json.place();
  const DumpKind kind = NextDumpValue(json, leaf_);
  if (kind == DumpKind::kDict) return ParseDict(json, node);
  if (kind == DumpKind::kError) return Malformed(json);
  json.Return(begin);
  return Expected("", "an object of fields (input_args, output, ...)", json.Take());
}

void EntryParser::PutText(v1::Node& node, v1::Node::Slot slot, std::string text) {
  node.set_slot(slot);
  out_->strings.push_back(std::move(text));
}

void EntryParser::PutJson(v1::Node& node, std::string_view text) {
  JsonWriter writer(false);
  writer.Json(text);
  PutText(node, v1::Node::JSON, writer.Take());
}

absl::Status EntryParser::Parse(JsonCursor& json, v1::Node& node) {
  const size_t depth = where_.size();
  const JsonCursor::Place begin = json.place();
  switch (NextDumpValue(json, leaf_)) {
    case DumpKind::kNull:
      node.set_slot(v1::Node::NONE);
      break;
    case DumpKind::kList:
      node.mutable_list();
      json.EnterArray();
      for (int index = 0; json.NextItem(); ++index) {
        where_ += Cat(".", index);
        if (absl::Status status = Parse(json, *node.mutable_list()->add_items()); !status.ok()) return status;
        where_.resize(depth);
      }
      break;
    case DumpKind::kDict:
      return ParseDict(json, node);
    case DumpKind::kLeaf:
      if (leaf_.is_tensor()) return ParseTensor(leaf_, *node.mutable_tensor());
      ParseScalar(leaf_, std::string_view(begin.at, static_cast<size_t>(json.place().at - begin.at)), node);
      break;
    case DumpKind::kBare:
      PutJson(node, json.Take().text);
      break;
    case DumpKind::kError:
      break;
  }
  return Malformed(json);
}

absl::Status EntryParser::ParseDict(JsonCursor& json, v1::Node& node) {
  const size_t depth = where_.size();
  node.mutable_dict();
  json.EnterObject();
  std::string_view key;
  while (json.NextKey(key)) {
    where_ += Cat(".", key);
    v1::Node::Entry* entry = node.mutable_dict()->add_entries();
    entry->set_key(std::string(key));
    if (absl::Status status = Parse(json, *entry->mutable_value()); !status.ok()) return status;
    where_.resize(depth);
  }
  return Malformed(json);
}

void EntryParser::ParseScalar(const DumpLeaf& leaf, std::string_view text, v1::Node& node) {
  const std::string type = StringOf(leaf.type);
  // With any other member the value is kept as it stands.
  const bool plain = leaf.others.size() == 1 && !leaf.dtype && !leaf.shape && !leaf.max && !leaf.min && !leaf.mean &&
                     !leaf.norm && !leaf.requires_grad && !leaf.md5 && !leaf.data_name && !leaf.extended;
  const JsonText value = plain ? leaf.Other("value") : JsonText();
  const std::optional<int64_t> whole = Int64Of(value);
  if (type == "bool" && value.is_bool()) {
    node.set_slot(v1::Node::BOOLEAN);
    out_->booleans.push_back(value.type == JsonType::kTrue);
  } else if (type == "int" && whole) {
    node.set_slot(v1::Node::INTEGER);
    out_->integers.push_back(*whole);
  } else if (type == "float" && value.is_number() && std::holds_alternative<double>(NumberOf(value))) {
    node.set_slot(v1::Node::FLOAT);
    out_->floats.push_back(DoubleOf(value));
  } else if (type == "str" && value.is_string()) {
    PutText(node, v1::Node::STRING, StringOf(value));
  } else {
    PutJson(node, text);
  }
}

absl::Status EntryParser::ParseTensor(const DumpLeaf& tensor, v1::Node::TensorSlot& slot) {
  if (absl::Status status = CheckTensor(tensor); !status.ok()) return At(status);
  slot.set_type(StringOf(tensor.type));
  const std::string dtype_text = StringOf(tensor.dtype);
  const v1::DType dtype = DTypeOfName(dtype_text);
  // Where the type's own name prints otherwise (MindSpore's Float32), the name is kept as text.
  const std::string_view printed = TorchDTypeName(dtype);
  const bool own_name =
      slot.type() == "numpy.ndarray" ? !printed.empty() && printed.substr(6) == dtype_text : printed == dtype_text;
  slot.set_dtype(own_name ? dtype : v1::DTYPE_OTHER);
  if (!own_name) slot.set_dtype_name(dtype_text);

  ImportedLeaf leaf;
  JsonCursor sizes(tensor.shape.text);
  sizes.EnterArray();
  while (sizes.NextItem()) leaf.shape.push_back(*Int64Of(sizes.Take()));
  if (tensor.requires_grad) slot.set_requires_grad(tensor.requires_grad.type == JsonType::kTrue);
  ParseStatistics(tensor, dtype, leaf);
  if (tensor.md5) {
    if (absl::Status status = ParseChecksum(tensor.md5, dtype, leaf); !status.ok()) return status;
  }
  if (tensor.extended) {
    if (absl::Status status = ParseExtended(tensor, dtype, slot, leaf); !status.ok()) return status;
  }
  if (absl::Status status = ParsePayload(tensor, dtype, slot, leaf); !status.ok()) return status;
  out_->leaves.push_back(std::move(leaf));
  return absl::OkStatus();
}

absl::Status EntryParser::ParsePayload(const DumpLeaf& tensor, v1::DType dtype, v1::Node::TensorSlot& slot,
                                       ImportedLeaf& leaf) {
  std::optional<ImportedPayload> payload;
  if (tensor.data_name) {
    if (find_payload_) {
      absl::StatusOr<std::optional<ImportedPayload>> found =
          find_payload_(StringOf(tensor.data_name), dtype, leaf.shape);
      if (!found.ok()) return found.status();
      payload = *std::move(found);
    }
  }
  JsonWriter attributes(false);
  attributes.StartObject();
  for (const auto& [name, value] : tensor.others) {
    attributes.Name(name);
    attributes.Json(value.text);
  }
  bool any = !tensor.others.empty();
  if (payload) {
    leaf.flags |= v1::LEAF_PAYLOAD;
    leaf.payload = payload->ref;
    slot.set_device(payload->device);
    if (IsQuantized(dtype) && !tensor.Other("q_scale")) {
      attributes.Name("q_scale");
      attributes.Double(payload->scale);
      attributes.Name("q_zero_point");
      attributes.Int64(payload->zero_point);
      any = true;
    }
  }
  attributes.EndObject();
  if (any) slot.set_attributes_json(attributes.Take());
  return absl::OkStatus();
}

void EntryParser::ParseStatistics(const DumpLeaf& from, v1::DType dtype, ImportedLeaf& leaf) {
  const JsonText values[] = {from.max, from.min, from.mean, from.norm};
  for (const JsonText& value : values) seen_.statistics = seen_.statistics || value;
  const auto is_there = [](const JsonText& value) { return value && !value.is_null(); };
  const auto real = [](const JsonText& value) {
    return value.is_bool() ? (value.type == JsonType::kTrue ? 1.0 : 0.0) : DoubleOf(value);
  };
  if (!is_there(values[0]) || !is_there(values[1])) return;
  leaf.flags |= v1::LEAF_STATISTICS | v1::LEAF_IMPORTED;
  leaf.floating[2] = is_there(values[2]) ? real(values[2]) : kNan;
  leaf.floating[3] = is_there(values[3]) ? real(values[3]) : kNan;
  leaf.floating[4] = kNan;
  const auto whole = [](const JsonText& value) -> std::optional<int64_t> {
    if (value.is_bool()) return value.type == JsonType::kTrue ? 1 : 0;
    if (const std::optional<int64_t> number = Int64Of(value)) return number;
    if (const std::optional<uint64_t> number = Uint64Of(value)) return static_cast<int64_t>(*number);
    return std::nullopt;
  };
  const std::optional<int64_t> extremes[] = {whole(values[0]), whole(values[1])};
  if (IsInteger(dtype) && extremes[0] && extremes[1]) {
    leaf.flags |= v1::LEAF_INTEGER;
    for (int i = 0; i < 2; ++i) leaf.extremes[i] = *extremes[i];
    return;
  }
  bool wide = dtype == v1::DTYPE_FLOAT64;
  for (int i = 0; i < 2; ++i) leaf.floating[i] = real(values[i]);
  for (int i = 0; i < 4; ++i) wide = wide || !FitsFloat(leaf.floating[i]);
  if (wide) leaf.flags |= v1::LEAF_WIDE;
  SetLowerBounds(leaf.floating[0], leaf.floating[1], leaf);
}

absl::Status EntryParser::ParseExtendedChecksums(const DumpLeaf& extended, ImportedLeaf& leaf) const {
  for (const char* name : {"crc32", "xor64"}) {
    const JsonText value = extended.Other(name);
    if (!value) continue;
    constexpr std::string_view kHexadecimal = "hexadecimal digits as checksum";
    if (!value.is_string()) return Expected("extended", kHexadecimal, value);
    const std::string text = StringOf(value);
    const bool wide = text.starts_with("0x");
    const std::optional<uint64_t> word = Hex(std::string_view(text).substr(wide ? 2 : 0));
    if (!word) return Expected("extended", kHexadecimal, value);
    leaf.flags |= wide ? v1::LEAF_XOR : v1::LEAF_CRC32;
    if (wide) {
      leaf.xor64 = *word;
    } else {
      leaf.crc32 = static_cast<uint32_t>(*word);
    }
  }
  return absl::OkStatus();
}

// Our own extended export knows everything, so its leaf is no longer marked as imported.
absl::Status EntryParser::ParseExtended(const DumpLeaf& tensor, v1::DType dtype, v1::Node::TensorSlot& slot,
                                        ImportedLeaf& leaf) {
  DumpLeaf extended;
  JsonCursor members(tensor.extended.text);
  ReadMembers(members, extended);
  if (const JsonText device = extended.Other("device"); device.is_string()) slot.set_device(StringOf(device));
  if (absl::Status status = ParseExtendedChecksums(extended, leaf); !status.ok()) return status;

  const auto number = [](const JsonText& value) -> std::optional<double> {
    if (!value.is_number()) return std::nullopt;
    return DoubleOf(value);
  };
  const auto count = [&](const char* name) { return Uint64Of(extended.Other(name)).value_or(0); };
  const std::optional<double> variance = number(extended.Other("Variance"));
  if (!variance) return absl::OkStatus();
  if ((leaf.flags & v1::LEAF_STATISTICS) == 0) {
    // The export left them null (8-bit floats), so they stand only here.
    const SeenChecksums before = seen_;
    if (absl::Status status = CheckStatistics(extended); !status.ok()) return At(status);
    ParseStatistics(extended, dtype, leaf);
    seen_ = before;
    if ((leaf.flags & v1::LEAF_STATISTICS) == 0) return absl::OkStatus();
  }
  leaf.flags &= ~static_cast<uint32_t>(v1::LEAF_IMPORTED);
  leaf.floating[2] = number(extended.mean).value_or(leaf.floating[2]);
  leaf.floating[3] = number(extended.norm).value_or(leaf.floating[3]);
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
  if (const JsonText finite = extended.Other("finite"); finite.is_object()) {
    JsonCursor cursor(finite.text);
    ReadMembers(cursor, extended);
    if (const auto value = number(extended.max)) counts.set_finite_max(*value);
    if (const auto value = number(extended.min)) counts.set_finite_min(*value);
    if (const auto value = number(extended.mean)) counts.set_finite_mean(*value);
    if (const auto value = number(extended.norm)) counts.set_finite_norm(*value);
  }
  leaf.non_finite = counts;
  return absl::OkStatus();
}

absl::Status EntryParser::ParseChecksum(const JsonText& value, v1::DType dtype, ImportedLeaf& leaf) {
  if (value.is_null()) return absl::OkStatus();
  if (value.is_number()) {
    seen_.xor64 = true;
    leaf.flags |= v1::LEAF_XOR;
    leaf.xor64 = BytesOf(dtype, DoubleOf(value));
    return absl::OkStatus();
  }
  constexpr std::string_view kWhat = "8 hexadecimal digits (md5), 0x and 16 (xor), or a 0-D tensor's value";
  if (!value.is_string()) return Expected("md5", kWhat, value);
  const std::string text = StringOf(value);
  const bool is_xor = text.starts_with("0x");
  const std::optional<uint64_t> word = Hex(std::string_view(text).substr(is_xor ? 2 : 0));
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
