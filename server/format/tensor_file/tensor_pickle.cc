#include "server/format/tensor_file/tensor_pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxPickle = 1 << 20;
constexpr size_t kMaxValues = 1 << 16;
constexpr std::string_view kPerTensor = "torch per_tensor_affine";
constexpr int kMaxDepth = 4;  // a Parameter of a tensor with attributes

struct Storage {
  std::string_view name;
  v1::DType dtype;
};

constexpr std::array<Storage, 15> kStorages = {{
    {"DoubleStorage", v1::DTYPE_FLOAT64},
    {"FloatStorage", v1::DTYPE_FLOAT32},
    {"HalfStorage", v1::DTYPE_FLOAT16},
    {"BFloat16Storage", v1::DTYPE_BFLOAT16},
    {"CharStorage", v1::DTYPE_INT8},
    {"ShortStorage", v1::DTYPE_INT16},
    {"IntStorage", v1::DTYPE_INT32},
    {"LongStorage", v1::DTYPE_INT64},
    {"ByteStorage", v1::DTYPE_UINT8},
    {"BoolStorage", v1::DTYPE_BOOL},
    {"ComplexFloatStorage", v1::DTYPE_COMPLEX64},
    {"ComplexDoubleStorage", v1::DTYPE_COMPLEX128},
    {"QInt8Storage", v1::DTYPE_QINT8},
    {"QUInt8Storage", v1::DTYPE_QUINT8},
    {"QInt32Storage", v1::DTYPE_QINT32},
}};

using Kind = PickleValue::Kind;

absl::Status Refuse(std::string_view what) { return absl::InvalidArgumentError(Cat("a tensor ", what)); }

// The tensors of a pickle, by the calls that rebuild them.
class TensorsOf {
 public:
  using Found = absl::StatusOr<std::optional<PickledTensor>>;

  explicit TensorsOf(const PickleTree& tree) : tree_(tree) {}

  Found At(const PickleValue& value, int depth = 0) const {
    return Called(tree_.CalledBy(value), tree_.at(value.arguments), depth);
  }

 private:
  Found Called(std::string_view function, const PickleValue& arguments, int depth) const;
  Found Parameter(const PickleValue& arguments, int depth) const;
  Found Tensor(const PickleValue& arguments, size_t requires_grad, const PickleValue* dtype,
               const PickleValue* quantizer, const PickleValue* metadata) const;
  absl::Status ReadStorage(const PickleValue& persistent, PickledTensor& tensor) const;
  absl::Status ReadQuantizer(const PickleValue& quantizer, TensorDescription& description) const;
  absl::Status ReadMetadata(const PickleValue& metadata, StridedLayout& layout) const;
  absl::StatusOr<std::vector<int64_t>> Integers(const PickleValue& tuple) const;
  // Argument `index`; None where there is no such one.
  const PickleValue& Argument(const PickleValue& arguments, size_t index) const {
    return index < arguments.items.size() ? tree_.at(arguments.items[index]) : tree_.at(0);
  }

  const PickleTree& tree_;
};

TensorsOf::Found TensorsOf::Called(std::string_view function, const PickleValue& arguments, int depth) const {
  if (depth > kMaxDepth) return Refuse("is wrapped too often, or in itself");
  const size_t count = arguments.items.size();
  const auto fits = [&](size_t least, size_t most) -> absl::Status {
    if (arguments.kind == Kind::kTuple && count >= least && count <= most) return absl::OkStatus();
    return Refuse(Cat("calls ", function, " with ", count, " arguments"));
  };
  const auto argument = [&](size_t index) { return index < count ? &Argument(arguments, index) : nullptr; };
  absl::Status status;
  if (function == "torch._utils _rebuild_tensor_v2") {
    if (status = fits(6, 7); !status.ok()) return status;
    return Tensor(arguments, 4, nullptr, nullptr, argument(6));
  }
  if (function == "torch._utils _rebuild_tensor_v3") {
    if (status = fits(7, 8); !status.ok()) return status;
    return Tensor(arguments, 4, argument(6), nullptr, argument(7));
  }
  if (function == "torch._utils _rebuild_qtensor") {
    if (status = fits(7, 7); !status.ok()) return status;
    if (Argument(*argument(4), 0).text != kPerTensor) return std::nullopt;
    return Tensor(arguments, 5, nullptr, argument(4), nullptr);
  }
  if (function == "torch._utils _rebuild_parameter" || function == "torch._utils _rebuild_parameter_with_state") {
    if (status = fits(3, 4); !status.ok()) return status;
    return Parameter(arguments, depth);
  }
  if (function == "torch._tensor _rebuild_from_type_v2") {
    // (function, type, arguments, state): a tensor with Python attributes, which are ignored.
    if (status = fits(4, 4); !status.ok()) return status;
    return Called(Argument(arguments, 0).text, Argument(arguments, 2), depth + 1);
  }
  return std::nullopt;
}

TensorsOf::Found TensorsOf::Parameter(const PickleValue& arguments, int depth) const {
  Found found = At(Argument(arguments, 0), depth + 1);
  if (!found.ok() || !found->has_value()) return found;
  const PickleValue& requires_grad = Argument(arguments, 1);
  if (requires_grad.kind != Kind::kBool) return Refuse("has a requires_grad that is no bool");
  (*found)->requires_grad = requires_grad.integer != 0;
  return found;
}

TensorsOf::Found TensorsOf::Tensor(const PickleValue& arguments, size_t requires_grad, const PickleValue* dtype,
                                   const PickleValue* quantizer, const PickleValue* metadata) const {
  PickledTensor tensor;
  TensorDescription& description = tensor.layout.description;
  if (absl::Status status = ReadStorage(Argument(arguments, 0), tensor); !status.ok()) return status;
  const PickleValue& offset = Argument(arguments, 1);
  if (offset.kind != Kind::kInt || offset.integer < 0) return Refuse("has a storage offset that is no number from 0");
  absl::StatusOr<std::vector<int64_t>> sizes = Integers(Argument(arguments, 2));
  if (!sizes.ok()) return sizes.status();
  absl::StatusOr<std::vector<int64_t>> strides = Integers(Argument(arguments, 3));
  if (!strides.ok()) return strides.status();
  if (Argument(arguments, requires_grad).kind != Kind::kBool) return Refuse("has a requires_grad that is no bool");
  constexpr std::string_view kTorch = "torch ";
  if (dtype != nullptr && (dtype->kind != Kind::kGlobal || !dtype->text.starts_with(kTorch))) {
    return Refuse("has a dtype that is none");
  }
  if (description.dtype == v1::DTYPE_UNSPECIFIED && dtype != nullptr) {
    description.dtype = DTypeOfName(std::string_view(dtype->text).substr(kTorch.size()));
  }
  if (DTypeSize(description.dtype) == 0) return Refuse("is of an unknown dtype");
  description.shape = *std::move(sizes);
  tensor.layout.strides = *std::move(strides);
  tensor.layout.offset = static_cast<uint64_t>(offset.integer);
  tensor.requires_grad = Argument(arguments, requires_grad).integer != 0;
  if (quantizer != nullptr) {
    if (absl::Status status = ReadQuantizer(*quantizer, description); !status.ok()) return status;
  }
  if (metadata != nullptr) {
    if (absl::Status status = ReadMetadata(*metadata, tensor.layout); !status.ok()) return status;
  }
  return tensor;
}

absl::Status TensorsOf::ReadStorage(const PickleValue& persistent, PickledTensor& tensor) const {
  if (persistent.kind != Kind::kPersistent) return Refuse("has no storage");
  const PickleValue& id = tree_.at(persistent.items[0]);
  const PickleValue& type = Argument(id, 1);
  const PickleValue& key = Argument(id, 2);
  const PickleValue& location = Argument(id, 3);
  const PickleValue& count = Argument(id, 4);
  if (id.kind != Kind::kTuple || id.items.size() != 5 || Argument(id, 0).text != "storage" ||
      type.kind != Kind::kGlobal || key.kind != Kind::kText || location.kind != Kind::kText ||
      count.kind != Kind::kInt || count.integer < 0) {
    return Refuse("has a storage that is not ('storage', type, key, location, count)");
  }
  uint64_t element = 1;
  tensor.layout.description.dtype = v1::DTYPE_UNSPECIFIED;
  if (!type.text.ends_with("UntypedStorage")) {
    const auto known = std::find_if(kStorages.begin(), kStorages.end(),
                                    [&](const Storage& each) { return type.text == Cat("torch ", each.name); });
    if (known == kStorages.end()) return Refuse(Cat("has a storage of type ", type.text));
    tensor.layout.description.dtype = known->dtype;
    element = DTypeSize(known->dtype);
  }
  if (static_cast<uint64_t>(count.integer) > (1ull << 58)) return Refuse("has a storage larger than any memory");
  tensor.storage_key = key.text;
  tensor.storage_bytes = static_cast<uint64_t>(count.integer) * element;
  tensor.layout.description.device = location.text;
  return absl::OkStatus();
}

absl::Status TensorsOf::ReadQuantizer(const PickleValue& quantizer, TensorDescription& description) const {
  const PickleValue& scale = Argument(quantizer, 1);
  const PickleValue& zero_point = Argument(quantizer, 2);
  if (quantizer.kind != Kind::kTuple || scale.kind != Kind::kFloat || zero_point.kind != Kind::kInt) {
    return Refuse("has a quantizer that is not (per_tensor_affine, scale, zero_point)");
  }
  description.scale = scale.real;
  description.zero_point = zero_point.integer;
  return absl::OkStatus();
}

absl::Status TensorsOf::ReadMetadata(const PickleValue& metadata, StridedLayout& layout) const {
  if (metadata.kind != Kind::kDict) return Refuse("has metadata that is no dict");
  for (size_t i = 0; i + 1 < metadata.items.size(); i += 2) {
    const std::string& key = tree_.at(metadata.items[i]).text;
    const bool on = tree_.at(metadata.items[i + 1]).integer != 0;
    if (key == "conj") {
      layout.conjugate = on;
    } else if (key == "neg") {
      layout.negative = on;
    } else {
      return Refuse(Cat("has the unknown metadata ", absl::CHexEscape(key.substr(0, 100))));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> TensorsOf::Integers(const PickleValue& tuple) const {
  if (tuple.kind != Kind::kTuple || tuple.items.size() > 64) {
    return Refuse("has a size or stride that is no tuple of up to 64");
  }
  std::vector<int64_t> integers;
  for (const PickleValue::Index item : tuple.items) {
    if (tree_.at(item).kind != Kind::kInt) return Refuse("has a size or stride that is no integer");
    integers.push_back(tree_.at(item).integer);
  }
  return integers;
}

// What the pickle of a tensor names: torch's rebuild functions, storages, dtypes, and what these take.
bool IsNameOfTensors(std::string_view global) {
  static constexpr std::string_view kKnown[] = {
      "torch._utils _rebuild_tensor_v2",
      "torch._utils _rebuild_tensor_v3",
      "torch._utils _rebuild_qtensor",
      "torch._utils _rebuild_parameter",
      "torch._utils _rebuild_parameter_with_state",
      "torch._utils _rebuild_meta_tensor_no_storage",
      "torch._tensor _rebuild_from_type_v2",
      "torch.nn.parameter Parameter",
      "torch.storage UntypedStorage",
      "torch UntypedStorage",
      "torch Tensor",
      kPerTensor,
      "collections OrderedDict",
  };
  if (std::find(std::begin(kKnown), std::end(kKnown), global) != std::end(kKnown)) return true;
  constexpr std::string_view kTorch = "torch ";
  if (!global.starts_with(kTorch)) return false;
  const std::string_view name = global.substr(kTorch.size());
  return DTypeOfName(name) != v1::DTYPE_OTHER ||
         std::any_of(kStorages.begin(), kStorages.end(), [&](const Storage& known) { return known.name == name; });
}

// Emits the same opcodes as torch's pickler, which memoizes every value but small ones in order.
class Pickler {
 public:
  void Raw(std::string_view bytes) { out_.append(bytes); }
  void Put() {
    if (memo_ < 256) {
      out_ += 'q';
      out_ += static_cast<char>(memo_);
    } else {
      out_ += 'r';
      Little(memo_, 4);
    }
    ++memo_;
  }
  void Global(std::string_view module, std::string_view name) {
    out_ += Cat("c", module, "\n", name, "\n");
    Put();
  }
  void Text(std::string_view text) {
    out_ += 'X';
    Little(text.size(), 4);
    out_ += text;
    Put();
  }
  void Int(int64_t value) {
    if (value >= 0 && value < 256) {
      out_ += 'K';
      Little(static_cast<uint64_t>(value), 1);
    } else if (value >= 0 && value < 65536) {
      out_ += 'M';
      Little(static_cast<uint64_t>(value), 2);
    } else if (value == static_cast<int32_t>(value)) {
      out_ += 'J';
      Little(static_cast<uint64_t>(value), 4);
    } else {
      size_t bytes = 5;
      while (bytes < 8 && (value << (64 - 8 * bytes)) >> (64 - 8 * bytes) != value) ++bytes;
      out_ += '\x8a';
      out_ += static_cast<char>(bytes);
      Little(static_cast<uint64_t>(value), bytes);
    }
  }
  void Float(double value) {
    out_ += 'G';
    const uint64_t bits = std::bit_cast<uint64_t>(value);
    for (int i = 7; i >= 0; --i) out_ += static_cast<char>(bits >> (8 * i));
  }
  void IntTuple(const std::vector<int64_t>& values) {
    if (values.empty()) {
      out_ += ')';
      return;
    }
    if (values.size() > 3) out_ += '(';
    for (int64_t value : values) Int(value);
    out_ += values.size() > 3 ? 't' : static_cast<char>(0x84 + values.size());
    Put();
  }
  std::string Take() { return std::move(out_); }

 private:
  void Little(uint64_t value, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
  }

  std::string out_;
  uint32_t memo_ = 0;
};

}  // namespace

absl::StatusOr<std::optional<PickledTensor>> TensorOf(const PickleTree& tree, const PickleValue& value) {
  return TensorsOf(tree).At(value);
}

absl::StatusOr<PickledTensor> ReadTensorPickle(std::string_view pickle) {
  const auto refuse = [](std::string_view what) { return absl::InvalidArgumentError(Cat("its pickle ", what)); };
  if (pickle.size() > kMaxPickle) return refuse(Cat("has ", pickle.size(), " bytes; at most ", kMaxPickle));
  absl::StatusOr<PickleTree> tree = PickleTree::Parse(pickle, kMaxValues);
  if (!tree.ok()) return tree.status();
  for (const PickleValue& value : tree->values()) {
    if (value.kind != Kind::kGlobal || IsNameOfTensors(value.text)) continue;
    return refuse(Cat("names ", absl::CHexEscape(value.text.substr(0, 200)),
                      ", which a saved tensor does not need; nothing else is accepted"));
  }
  if (tree->CalledBy(tree->root()) == "torch._utils _rebuild_meta_tensor_no_storage") {
    return refuse("is of a meta tensor, which has no elements");
  }
  auto tensor = TensorOf(*tree, tree->root());
  if (!tensor.ok()) return tensor.status();
  if (!tensor->has_value()) return refuse("holds something else than one tensor");
  return **std::move(tensor);
}

absl::StatusOr<std::string> WriteTensorPickle(const TensorDescription& description) {
  absl::StatusOr<uint64_t> size = ContentSize(description);
  if (!size.ok()) return size.status();
  const v1::DType dtype = description.dtype;
  const auto storage =
      std::find_if(kStorages.begin(), kStorages.end(), [&](const Storage& known) { return known.dtype == dtype; });
  const bool untyped = storage == kStorages.end();
  const bool quantized = IsQuantized(dtype);

  Pickler out;
  out.Raw("\x80\x02");
  out.Global("torch._utils", quantized ? "_rebuild_qtensor" : untyped ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  out.Raw("((");
  out.Text("storage");
  if (untyped) {
    out.Global("torch.storage", "UntypedStorage");
  } else {
    out.Global("torch", storage->name);
  }
  out.Text("0");
  out.Text(description.device.empty() ? "cpu" : description.device);
  out.Int(static_cast<int64_t>(untyped ? *size : *size / DTypeSize(dtype)));
  out.Raw("t");
  out.Put();
  out.Raw("Q");
  out.Int(0);
  out.IntTuple(description.shape);
  std::vector<int64_t> strides(description.shape.size());
  int64_t stride = 1;
  for (size_t i = strides.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(description.shape[i], 1);
  }
  out.IntTuple(strides);
  if (quantized) {
    out.Global("torch", "per_tensor_affine");
    out.Float(description.scale);
    out.Int(description.zero_point);
    out.Raw("\x87");
    out.Put();
  }
  out.Raw("\x89");
  out.Global("collections", "OrderedDict");
  out.Raw(")R");
  out.Put();
  if (untyped) out.Global("torch", TorchDTypeName(dtype).substr(6));
  out.Raw("t");
  out.Put();
  out.Raw("R");
  out.Put();
  out.Raw(".");
  return out.Take();
}

}  // namespace msprobe::server
