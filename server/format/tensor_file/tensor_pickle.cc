#include "server/format/tensor_file/tensor_pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxPickle = 1 << 20;
constexpr size_t kMaxValues = 1 << 16;

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

enum class Kind { kMark, kNone, kBool, kInt, kFloat, kString, kGlobal, kTuple, kDict, kStorage, kTensor };

using Index = uint32_t;

// Values live in one arena and refer to each other by index, so that no nesting leads to recursion.
struct Value {
  Kind kind = Kind::kNone;
  int64_t integer = 0;  // kBool, kInt; kStorage: bytes
  double real = 0;
  std::string text = {};          // kString; kGlobal: "module name"
  std::vector<Index> items = {};  // kTuple; kDict: key, value, key, ...
  // kStorage, kTensor
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;  // kStorage: unspecified for an untyped one
  std::string device = {};
  PickledTensor tensor = {};
};

absl::Status Refuse(std::string_view what) { return absl::InvalidArgumentError(Cat("tensor pickle: ", what)); }

class Interpreter {
 public:
  explicit Interpreter(std::string_view bytes) : rest_(bytes) {}

  absl::StatusOr<PickledTensor> Run() {
    while (true) {
      absl::StatusOr<std::string_view> opcode = Take(1);
      if (!opcode.ok()) return opcode.status();
      if ((*opcode)[0] == '.') break;
      if (absl::Status status = Step((*opcode)[0]); !status.ok()) return status;
    }
    if (stack_.size() != 1) return Refuse(Cat("ends with ", stack_.size(), " values, not one"));
    Value& result = values_[stack_[0]];
    if (result.kind != Kind::kTensor) return Refuse("holds something else than one tensor");
    return std::move(result.tensor);
  }

 private:
  absl::StatusOr<std::string_view> Take(uint64_t count) {
    if (count > rest_.size()) return Refuse("ends too early");
    std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  absl::StatusOr<uint64_t> TakeNumber(size_t count) {
    absl::StatusOr<std::string_view> bytes = Take(count);
    if (!bytes.ok()) return bytes.status();
    uint64_t number = 0;
    for (size_t i = count; i-- > 0;) number = number << 8 | static_cast<unsigned char>((*bytes)[i]);
    return number;
  }

  absl::StatusOr<std::string_view> TakeLine() {
    const size_t end = rest_.find('\n');
    if (end == std::string_view::npos) return Refuse("ends inside a name");
    std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line;
  }

  absl::Status Push(Value value) {
    if (values_.size() >= kMaxValues) return Refuse(Cat("makes more than ", kMaxValues, " values"));
    values_.push_back(std::move(value));
    return PushIndex(static_cast<Index>(values_.size() - 1));
  }

  absl::Status PushIndex(Index index) {
    if (stack_.size() >= kMaxValues) return Refuse("overflows its stack");
    stack_.push_back(index);
    return absl::OkStatus();
  }

  absl::StatusOr<Index> Pop() {
    if (stack_.empty()) return Refuse("underflows its stack");
    const Index index = stack_.back();
    if (values_[index].kind == Kind::kMark) return Refuse("takes a mark for a value");
    stack_.pop_back();
    return index;
  }

  // Pops everything down to the last mark, and the mark.
  absl::StatusOr<std::vector<Index>> PopToMark() {
    for (size_t i = stack_.size(); i-- > 0;) {
      if (values_[stack_[i]].kind != Kind::kMark) continue;
      std::vector<Index> items(stack_.begin() + static_cast<ptrdiff_t>(i) + 1, stack_.end());
      stack_.resize(i);
      return items;
    }
    return Refuse("lacks a mark");
  }

  // Bounds the elements of all tuples and dicts together. A mark is popped only once, but memo values can repeat.
  absl::Status Count(size_t items) {
    items_ += items;
    return items_ > kMaxValues * 4 ? Refuse("has too many items") : absl::OkStatus();
  }

  absl::Status PushTuple(std::vector<Index> items) {
    if (absl::Status status = Count(items.size()); !status.ok()) return status;
    Value value{.kind = Kind::kTuple};
    value.items = std::move(items);
    return Push(std::move(value));
  }

  absl::Status PushTupleOf(size_t count) {
    std::vector<Index> items(count);
    for (size_t i = count; i-- > 0;) {
      absl::StatusOr<Index> item = Pop();
      if (!item.ok()) return item.status();
      items[i] = *item;
    }
    return PushTuple(std::move(items));
  }

  absl::Status PushInt(int64_t integer) { return Push({.kind = Kind::kInt, .integer = integer}); }

  absl::Status PushString(size_t length_bytes) {
    absl::StatusOr<uint64_t> length = TakeNumber(length_bytes);
    if (!length.ok()) return length.status();
    absl::StatusOr<std::string_view> text = Take(*length);
    if (!text.ok()) return text.status();
    Value value{.kind = Kind::kString};
    value.text = std::string(*text);
    return Push(std::move(value));
  }

  absl::Status PushGlobal(std::string_view module, std::string_view name) {
    const std::string global = Cat(module, " ", name);
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
        "torch per_tensor_affine",
        "collections OrderedDict",
    };
    const bool storage =
        module == "torch" && std::any_of(kStorages.begin(), kStorages.end(), [&](auto& s) { return s.name == name; });
    const bool dtype = module == "torch" && DTypeOfName(name) != v1::DTYPE_OTHER;
    if (!storage && !dtype && std::find(std::begin(kKnown), std::end(kKnown), global) == std::end(kKnown)) {
      return Refuse(Cat("names ", absl::CHexEscape(global.substr(0, 200)),
                        ", which a saved tensor does not need; nothing else is accepted"));
    }
    Value value{.kind = Kind::kGlobal};
    value.text = global;
    return Push(std::move(value));
  }

  absl::Status Memoize(uint64_t slot) {
    if (stack_.empty()) return Refuse("underflows its stack");
    if (slot > kMaxValues) return Refuse(Cat("has the memo slot ", slot));
    memo_[slot] = stack_.back();
    return absl::OkStatus();
  }

  absl::Status Recall(uint64_t slot) {
    auto it = memo_.find(slot);
    if (it == memo_.end()) return Refuse(Cat("recalls the empty memo slot ", slot));
    return PushIndex(it->second);
  }

  absl::Status SetItems(const std::vector<Index>& items) {
    if (stack_.empty() || values_[stack_.back()].kind != Kind::kDict || items.size() % 2 != 0) {
      return Refuse("sets items of something that is not a dict");
    }
    if (absl::Status status = Count(items.size()); !status.ok()) return status;
    Value& dict = values_[stack_.back()];
    dict.items.insert(dict.items.end(), items.begin(), items.end());
    return absl::OkStatus();
  }

  // action(number), where the number is the next `bytes` bytes.
  template <typename Action>
  absl::Status WithNumber(size_t bytes, Action action) {
    absl::StatusOr<uint64_t> number = TakeNumber(bytes);
    if (!number.ok()) return number.status();
    return action(*number);
  }

  absl::Status Step(char opcode);
  // Each for a group of opcodes.
  absl::Status StepMemo(unsigned char opcode);
  absl::Status StepTuple(unsigned char opcode);
  absl::Status StepNumber(unsigned char opcode);
  absl::Status StepDict(unsigned char opcode);

  absl::Status PushGlobalOfLines();
  absl::Status PushGlobalOfStack();
  absl::Status PushLong();
  absl::Status PushFloat();
  absl::Status PushStorage();
  absl::Status Reduce();
  absl::Status Rebuild(const std::string& function, const std::vector<Index>& arguments);
  absl::Status RebuildTensor(const std::vector<Index>& arguments, v1::DType dtype, const Value* quantizer,
                             bool requires_grad, const Value* metadata);
  absl::StatusOr<std::vector<int64_t>> Integers(Index tuple) const;
  absl::StatusOr<bool> Boolean(Index index) const;

  std::string_view rest_;
  std::vector<Value> values_;
  std::vector<Index> stack_;
  std::map<uint64_t, Index> memo_;
  size_t items_ = 0;
};

absl::Status Interpreter::Step(char opcode) {
  const auto byte = static_cast<unsigned char>(opcode);
  switch (byte) {
    case 0x80:  // PROTO
      return WithNumber(1, [](uint64_t protocol) {
        return protocol >= 2 && protocol <= 5 ? absl::OkStatus() : Refuse(Cat("has protocol ", protocol));
      });
    case 0x95:  // FRAME
      return WithNumber(8, [](uint64_t) { return absl::OkStatus(); });
    case 'c':
      return PushGlobalOfLines();
    case 0x93:  // STACK_GLOBAL
      return PushGlobalOfStack();
    case 'X':
      return PushString(4);
    case 0x8c:  // SHORT_BINUNICODE
      return PushString(1);
    case 0x94:
    case 'q':
    case 'r':
    case 'h':
    case 'j':
      return StepMemo(byte);
    case '(':
      return Push({.kind = Kind::kMark});
    case ')':
    case 't':
    case 0x85:
    case 0x86:
    case 0x87:
      return StepTuple(byte);
    case 'N':
      return Push({.kind = Kind::kNone});
    case 0x88:
    case 0x89:
      return Push({.kind = Kind::kBool, .integer = byte == 0x88});
    case 'J':
    case 'K':
    case 'M':
    case 0x8a:
    case 'G':
      return StepNumber(byte);
    case 'Q':
      return PushStorage();
    case 'R':
      return Reduce();
    case '}':
    case 's':
    case 'u':
      return StepDict(byte);
    default:
      return Refuse(Cat("has the opcode 0x", absl::Hex(byte, absl::kZeroPad2), ", which a saved tensor does not need"));
  }
}

absl::Status Interpreter::PushGlobalOfLines() {
  absl::StatusOr<std::string_view> module = TakeLine();
  if (!module.ok()) return module.status();
  absl::StatusOr<std::string_view> name = TakeLine();
  if (!name.ok()) return name.status();
  return PushGlobal(*module, *name);
}

absl::Status Interpreter::PushGlobalOfStack() {
  absl::StatusOr<Index> name = Pop();
  if (!name.ok()) return name.status();
  absl::StatusOr<Index> module = Pop();
  if (!module.ok()) return module.status();
  if (values_[*name].kind != Kind::kString || values_[*module].kind != Kind::kString)
    return Refuse("has a name that is no text");
  return PushGlobal(std::string(values_[*module].text), std::string(values_[*name].text));
}

absl::Status Interpreter::StepMemo(unsigned char opcode) {
  const auto memoize = [this](uint64_t slot) { return Memoize(slot); };
  const auto recall = [this](uint64_t slot) { return Recall(slot); };
  switch (opcode) {
    case 'q':
      return WithNumber(1, memoize);
    case 'r':
      return WithNumber(4, memoize);
    case 'h':
      return WithNumber(1, recall);
    case 'j':
      return WithNumber(4, recall);
    default:  // MEMOIZE
      return Memoize(memo_.size());
  }
}

absl::Status Interpreter::StepTuple(unsigned char opcode) {
  if (opcode == ')') return PushTuple({});
  if (opcode != 't') return PushTupleOf(opcode - 0x84u);
  absl::StatusOr<std::vector<Index>> items = PopToMark();
  if (!items.ok()) return items.status();
  return PushTuple(*std::move(items));
}

absl::Status Interpreter::StepNumber(unsigned char opcode) {
  const auto push = [this](uint64_t n) { return PushInt(static_cast<int64_t>(n)); };
  switch (opcode) {
    case 'J':
      return WithNumber(4, [&](uint64_t n) { return PushInt(static_cast<int32_t>(static_cast<uint32_t>(n))); });
    case 'K':
      return WithNumber(1, push);
    case 'M':
      return WithNumber(2, push);
    case 'G':
      return PushFloat();
    default:
      return PushLong();
  }
}

// LONG1: two's complement, little-endian.
absl::Status Interpreter::PushLong() {
  absl::StatusOr<uint64_t> length = TakeNumber(1);
  if (!length.ok()) return length.status();
  if (*length > 8) return Refuse("has an integer of more than 64 bits");
  return WithNumber(*length, [&](uint64_t n) {
    const unsigned shift = 64 - 8 * static_cast<unsigned>(*length);
    return PushInt(*length == 0 ? 0 : static_cast<int64_t>(n << shift) >> shift);
  });
}

// Big-endian, unlike every other number.
absl::Status Interpreter::PushFloat() {
  absl::StatusOr<std::string_view> bytes = Take(8);
  if (!bytes.ok()) return bytes.status();
  uint64_t bits = 0;
  for (char c : *bytes) bits = bits << 8 | static_cast<unsigned char>(c);
  return Push({.kind = Kind::kFloat, .real = std::bit_cast<double>(bits)});
}

absl::Status Interpreter::StepDict(unsigned char opcode) {
  if (opcode == '}') return Push({.kind = Kind::kDict});
  if (opcode == 'u') {
    absl::StatusOr<std::vector<Index>> items = PopToMark();
    if (!items.ok()) return items.status();
    return SetItems(*items);
  }
  absl::StatusOr<Index> value = Pop();
  if (!value.ok()) return value.status();
  absl::StatusOr<Index> key = Pop();
  if (!key.ok()) return key.status();
  return SetItems({*key, *value});
}

absl::Status Interpreter::PushStorage() {
  absl::StatusOr<Index> id = Pop();
  if (!id.ok()) return id.status();
  const Value& tuple = values_[*id];
  if (tuple.kind != Kind::kTuple || tuple.items.size() != 5) return Refuse("has a storage that is not a tuple of five");
  const Value& tag = values_[tuple.items[0]];
  const Value& type = values_[tuple.items[1]];
  const Value& key = values_[tuple.items[2]];
  const Value& location = values_[tuple.items[3]];
  const Value& count = values_[tuple.items[4]];
  if (tag.text != "storage" || type.kind != Kind::kGlobal || key.kind != Kind::kString ||
      location.kind != Kind::kString || count.kind != Kind::kInt || count.integer < 0) {
    return Refuse("has a storage that is not ('storage', type, key, location, count)");
  }
  Value storage{.kind = Kind::kStorage};
  storage.text = key.text;
  storage.device = location.text;
  uint64_t element = 1;
  if (!absl::EndsWith(type.text, "UntypedStorage")) {
    for (const Storage& known : kStorages) {
      if (type.text == Cat("torch ", known.name)) storage.dtype = known.dtype;
    }
    if (storage.dtype == v1::DTYPE_UNSPECIFIED) return Refuse(Cat("has a storage of type ", type.text));
    element = DTypeSize(storage.dtype);
  }
  if (static_cast<uint64_t>(count.integer) > (1ull << 58)) return Refuse("has a storage larger than any memory");
  storage.integer = count.integer * static_cast<int64_t>(element);
  return Push(std::move(storage));
}

absl::Status Interpreter::Reduce() {
  absl::StatusOr<Index> arguments = Pop();
  if (!arguments.ok()) return arguments.status();
  absl::StatusOr<Index> function = Pop();
  if (!function.ok()) return function.status();
  if (values_[*function].kind != Kind::kGlobal || values_[*arguments].kind != Kind::kTuple) {
    return Refuse("calls something that is not a known function");
  }
  return Rebuild(std::string(values_[*function].text), std::vector<Index>(values_[*arguments].items));
}

absl::StatusOr<bool> Interpreter::Boolean(Index index) const {
  if (values_[index].kind != Kind::kBool) return Refuse("has a requires_grad that is no bool");
  return values_[index].integer != 0;
}

absl::StatusOr<std::vector<int64_t>> Interpreter::Integers(Index tuple) const {
  const Value& value = values_[tuple];
  if (value.kind != Kind::kTuple || value.items.size() > 64)
    return Refuse("has a size or stride that is no tuple of up to 64");
  std::vector<int64_t> integers;
  for (Index item : value.items) {
    if (values_[item].kind != Kind::kInt) return Refuse("has a size or stride that is no integer");
    integers.push_back(values_[item].integer);
  }
  return integers;
}

absl::Status Interpreter::Rebuild(const std::string& function, const std::vector<Index>& arguments) {
  if (function == "collections OrderedDict") {
    if (!arguments.empty()) return Refuse("has an OrderedDict with arguments");
    return Push({.kind = Kind::kDict});
  }
  const size_t count = arguments.size();
  if (function == "torch._utils _rebuild_tensor_v2" && (count == 6 || count == 7)) {
    absl::StatusOr<bool> requires_grad = Boolean(arguments[4]);
    if (!requires_grad.ok()) return requires_grad.status();
    return RebuildTensor(arguments, v1::DTYPE_UNSPECIFIED, nullptr, *requires_grad,
                         count == 7 ? &values_[arguments[6]] : nullptr);
  }
  if (function == "torch._utils _rebuild_tensor_v3" && (count == 7 || count == 8)) {
    absl::StatusOr<bool> requires_grad = Boolean(arguments[4]);
    if (!requires_grad.ok()) return requires_grad.status();
    const Value& dtype = values_[arguments[6]];
    if (dtype.kind != Kind::kGlobal || !absl::StartsWith(dtype.text, "torch "))
      return Refuse("has a dtype that is none");
    return RebuildTensor(arguments, DTypeOfName(std::string_view(dtype.text).substr(6)), nullptr, *requires_grad,
                         count == 8 ? &values_[arguments[7]] : nullptr);
  }
  if (function == "torch._utils _rebuild_qtensor" && count == 7) {
    absl::StatusOr<bool> requires_grad = Boolean(arguments[5]);
    if (!requires_grad.ok()) return requires_grad.status();
    return RebuildTensor(arguments, v1::DTYPE_UNSPECIFIED, &values_[arguments[4]], *requires_grad, nullptr);
  }
  if ((function == "torch._utils _rebuild_parameter" && count == 3) ||
      (function == "torch._utils _rebuild_parameter_with_state" && count == 4)) {
    if (values_[arguments[0]].kind != Kind::kTensor) return Refuse("has a Parameter without a tensor");
    absl::StatusOr<bool> requires_grad = Boolean(arguments[1]);
    if (!requires_grad.ok()) return requires_grad.status();
    Value value = values_[arguments[0]];
    value.tensor.requires_grad = *requires_grad;
    return Push(std::move(value));
  }
  if (function == "torch._tensor _rebuild_from_type_v2" && count == 4) {
    // (function, type, arguments, state): a tensor with Python attributes, which are ignored. One level only.
    const Value& inner = values_[arguments[0]];
    const Value& inner_arguments = values_[arguments[2]];
    if (inner.kind != Kind::kGlobal || inner.text == function || inner_arguments.kind != Kind::kTuple) {
      return Refuse("has a tensor of an unknown kind");
    }
    return Rebuild(std::string(inner.text), std::vector<Index>(inner_arguments.items));
  }
  if (function == "torch._utils _rebuild_meta_tensor_no_storage")
    return Refuse("is of a meta tensor, which has no elements");
  return Refuse(Cat("calls ", function, " with ", count, " arguments"));
}

absl::Status Interpreter::RebuildTensor(const std::vector<Index>& arguments, v1::DType dtype, const Value* quantizer,
                                        bool requires_grad, const Value* metadata) {
  const Value& storage = values_[arguments[0]];
  const Value& offset = values_[arguments[1]];
  if (storage.kind != Kind::kStorage) return Refuse("has a tensor without a storage");
  if (offset.kind != Kind::kInt || offset.integer < 0) return Refuse("has a storage offset that is no number from 0");
  absl::StatusOr<std::vector<int64_t>> sizes = Integers(arguments[2]);
  if (!sizes.ok()) return sizes.status();
  absl::StatusOr<std::vector<int64_t>> strides = Integers(arguments[3]);
  if (!strides.ok()) return strides.status();
  Value value{.kind = Kind::kTensor};
  PickledTensor& tensor = value.tensor;
  TensorDescription& description = tensor.layout.description;
  description.dtype = storage.dtype != v1::DTYPE_UNSPECIFIED ? storage.dtype : dtype;
  if (DTypeSize(description.dtype) == 0) return Refuse("has a tensor of an unknown dtype");
  description.shape = *std::move(sizes);
  description.device = storage.device;
  tensor.layout.strides = *std::move(strides);
  tensor.layout.offset = static_cast<uint64_t>(offset.integer);
  tensor.storage_key = storage.text;
  tensor.storage_bytes = static_cast<uint64_t>(storage.integer);
  tensor.requires_grad = requires_grad;
  if (quantizer != nullptr) {
    if (quantizer->kind != Kind::kTuple || quantizer->items.size() != 3 ||
        values_[quantizer->items[0]].text != "torch per_tensor_affine" ||
        values_[quantizer->items[1]].kind != Kind::kFloat || values_[quantizer->items[2]].kind != Kind::kInt) {
      return Refuse("has a quantizer that is not (per_tensor_affine, scale, zero_point)");
    }
    description.scale = values_[quantizer->items[1]].real;
    description.zero_point = values_[quantizer->items[2]].integer;
  }
  if (metadata != nullptr) {
    if (metadata->kind != Kind::kDict) return Refuse("has tensor metadata that is no dict");
    for (size_t i = 0; i + 1 < metadata->items.size(); i += 2) {
      const std::string& key = values_[metadata->items[i]].text;
      const bool on = values_[metadata->items[i + 1]].integer != 0;
      if (key == "conj") {
        tensor.layout.conjugate = on;
      } else if (key == "neg") {
        tensor.layout.negative = on;
      } else {
        return Refuse(Cat("has the unknown tensor metadata ", absl::CHexEscape(key.substr(0, 100))));
      }
    }
  }
  return Push(std::move(value));
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

v1::DType DTypeOfStorage(std::string_view name) {
  const auto storage =
      std::find_if(kStorages.begin(), kStorages.end(), [&](const Storage& known) { return known.name == name; });
  return storage == kStorages.end() ? v1::DTYPE_UNSPECIFIED : storage->dtype;
}

absl::StatusOr<PickledTensor> ReadTensorPickle(std::string_view pickle) {
  if (pickle.size() > kMaxPickle) return Refuse(Cat("has ", pickle.size(), " bytes; at most ", kMaxPickle));
  return Interpreter(pickle).Run();
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
