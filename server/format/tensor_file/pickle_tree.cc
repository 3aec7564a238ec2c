#include "server/format/tensor_file/pickle_tree.h"

#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_format.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using Kind = PickleValue::Kind;
using Index = PickleValue::Index;

struct Refused {
  uint8_t opcode;
  std::string_view name;
};
constexpr std::array<Refused, 17> kRefused = {{{'P', "PERSID"},
                                               {'i', "INST"},
                                               {'o', "OBJ"},
                                               {0x82, "EXT1"},
                                               {0x83, "EXT2"},
                                               {0x84, "EXT4"},
                                               {'I', "INT"},
                                               {'L', "LONG"},
                                               {'F', "FLOAT"},
                                               {'S', "STRING"},
                                               {'V', "UNICODE"},
                                               {'g', "GET"},
                                               {'p', "PUT"},
                                               {0x97, "NEXT_BUFFER"},
                                               {0x98, "READONLY_BUFFER"},
                                               {'2', "DUP"},
                                               {'1', "POP_MARK"}}};

}  // namespace

class PickleReader {
 public:
  PickleReader(std::string_view pickle, size_t max_values) : pickle_(pickle), max_values_(max_values) {}

  absl::StatusOr<PickleTree> Run() {
    tree_.values_.emplace_back();
    while (!stopped_) {
      const uint8_t opcode = static_cast<uint8_t>(Number<1>());
      if (error_.ok()) Do(opcode);
      if (error_.ok() && tree_.values_.size() > max_values_) Refuse(Cat("has over ", max_values_, " values"));
      if (!error_.ok()) return error_;
    }
    return std::move(tree_);
  }

 private:
  void Refuse(std::string_view why) {
    if (error_.ok()) error_ = absl::InvalidArgumentError(Cat("its pickle ", why));
  }

  std::string_view Take(uint64_t count) {
    if (count > pickle_.size() - at_) {
      Refuse("is cut off");
      return {};
    }
    const std::string_view taken = pickle_.substr(at_, count);
    at_ += count;
    return taken;
  }

  template <size_t kBytes>
  uint64_t Number() {
    const std::string_view bytes = Take(kBytes);
    uint64_t number = 0;
    if (!bytes.empty()) std::memcpy(&number, bytes.data(), bytes.size());
    return number;
  }

  std::string Line() {
    const size_t end = pickle_.find('\n', at_);
    if (end == std::string_view::npos) {
      Refuse("is cut off");
      return {};
    }
    std::string line(pickle_.substr(at_, end - at_));
    at_ = end + 1;
    return line;
  }

  Index Push(PickleValue value) {
    tree_.values_.push_back(std::move(value));
    stack_.push_back(static_cast<Index>(tree_.values_.size() - 1));
    return stack_.back();
  }

  Index Pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() == marks_.back())) {
      Refuse("takes from an empty stack");
      return 0;
    }
    const Index top = stack_.back();
    stack_.pop_back();
    return top;
  }

  // The value that collects what is above it.
  PickleValue* Top() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() == marks_.back())) {
      Refuse("takes from an empty stack");
      return nullptr;
    }
    return &tree_.values_[stack_.back()];
  }

  std::vector<Index> PopToMark() {
    if (marks_.empty()) {
      Refuse("has no mark where it needs one");
      return {};
    }
    std::vector<Index> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void PushItems(Kind kind, std::vector<Index> items) { Push({.kind = kind, .items = std::move(items)}); }
  void PushText(Kind kind, uint64_t size) { Push({.kind = kind, .text = std::string(Take(size))}); }
  void PushInt(int64_t value) { Push({.kind = Kind::kInt, .integer = value}); }

  void PushLong(uint64_t size) {
    const std::string_view bytes = Take(size);
    if (bytes.size() > 8) {
      Push({.kind = Kind::kLong});
      return;
    }
    uint64_t value = !bytes.empty() && static_cast<int8_t>(bytes.back()) < 0 ? ~uint64_t{0} : 0;
    std::memcpy(&value, bytes.data(), bytes.size());
    PushInt(static_cast<int64_t>(value));
  }

  void Tuple(size_t count) {
    std::vector<Index> items(count);
    for (size_t i = count; i-- > 0;) items[i] = Pop();
    PushItems(Kind::kTuple, std::move(items));
  }

  void Fill(std::vector<Index> items, bool pairs) {
    PickleValue* const into = Top();
    if (into == nullptr) return;
    if (pairs && items.size() % 2 != 0) return Refuse("sets a key without a value");
    into->items.insert(into->items.end(), items.begin(), items.end());
  }

  void Call() {
    const Index arguments = Pop();
    const Index callable = Pop();
    const std::string& name = tree_.values_[callable].text;
    if (name == "collections OrderedDict" && tree_.values_[arguments].items.empty()) {
      Push({.kind = Kind::kDict});
    } else {
      Push({.kind = Kind::kObject, .callable = callable, .arguments = arguments});
    }
  }

  void Memoize(uint64_t key) {
    if (Top() != nullptr) memo_[key] = stack_.back();
  }
  void Recall(uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) return Refuse(Cat("recalls the value ", key, ", which it never kept"));
    stack_.push_back(found->second);
    if (stack_.size() > max_values_) Refuse(Cat("has over ", max_values_, " values"));
  }

  void Do(uint8_t opcode);
  void DoNumberOrText(uint8_t opcode);

  const std::string_view pickle_;
  const size_t max_values_;
  size_t at_ = 0;
  bool stopped_ = false;
  absl::Status error_;
  PickleTree tree_;
  std::vector<Index> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  absl::flat_hash_map<uint64_t, Index> memo_;
};

void PickleReader::Do(uint8_t opcode) {
  switch (opcode) {
    case 0x80:  // PROTO
      if (const uint64_t protocol = Number<1>(); protocol > 5) Refuse(Cat("is of the unknown protocol ", protocol));
      return;
    case 0x95:  // FRAME
      Number<8>();
      return;
    case '.':
      tree_.root_ = Pop();
      stopped_ = true;
      return;
    case '(':
      if (marks_.size() >= max_values_) return Refuse(Cat("has over ", max_values_, " marks"));
      return marks_.push_back(stack_.size());
    case '0':
      Pop();
      return;
    case ')':
      return PushItems(Kind::kTuple, {});
    case 0x85:
    case 0x86:
    case 0x87:
      return Tuple(opcode - 0x84u);
    case 't':
      return PushItems(Kind::kTuple, PopToMark());
    case ']':
      return PushItems(Kind::kList, {});
    case 'l':
      return PushItems(Kind::kList, PopToMark());
    case 'a': {
      const Index item = Pop();
      return Fill({item}, false);
    }
    case 'e':
      return Fill(PopToMark(), false);
    case '}':
      return PushItems(Kind::kDict, {});
    case 'd':
      return PushItems(Kind::kDict, PopToMark());
    case 's': {
      const Index value = Pop();
      const Index key = Pop();
      return Fill({key, value}, true);
    }
    case 'u':
      return Fill(PopToMark(), true);
    case 0x8f:
      return PushItems(Kind::kSet, {});
    case 0x90:
      return Fill(PopToMark(), false);
    case 0x91:
      return PushItems(Kind::kSet, PopToMark());
    case 'c': {
      const std::string module = Line();
      Push({.kind = Kind::kGlobal, .text = Cat(module, " ", Line())});
      return;
    }
    case 0x93: {  // STACK_GLOBAL
      const Index name = Pop();
      const Index module = Pop();
      constexpr size_t kMaxGlobal = 1024;
      if (tree_.values_[module].text.size() + tree_.values_[name].text.size() > kMaxGlobal) {
        return Refuse("names a global of too many bytes");
      }
      Push({.kind = Kind::kGlobal, .text = Cat(tree_.values_[module].text, " ", tree_.values_[name].text)});
      return;
    }
    case 0x92:  // NEWOBJ_EX
      Pop();
      return Call();
    case 'R':
    case 0x81:  // NEWOBJ
      return Call();
    case 'b': {
      const Index state = Pop();
      if (PickleValue* const built = Top(); built != nullptr) built->state = state;
      return;
    }
    case 'Q': {
      const Index id = Pop();
      return PushItems(Kind::kPersistent, {id});
    }
    case 'h':
      return Recall(Number<1>());
    case 'j':
      return Recall(Number<4>());
    case 'q':
      return Memoize(Number<1>());
    case 'r':
      return Memoize(Number<4>());
    case 0x94:
      return Memoize(memo_.size());
    default:
      return DoNumberOrText(opcode);
  }
}

void PickleReader::DoNumberOrText(uint8_t opcode) {
  switch (opcode) {
    case 'N':
      Push({});
      return;
    case 0x88:
    case 0x89:
      Push({.kind = Kind::kBool, .integer = opcode == 0x88});
      return;
    case 'J':
      return PushInt(static_cast<int32_t>(Number<4>()));
    case 'K':
      return PushInt(static_cast<int64_t>(Number<1>()));
    case 'M':
      return PushInt(static_cast<int64_t>(Number<2>()));
    case 0x8a:
      return PushLong(Number<1>());
    case 0x8b:
      return PushLong(Number<4>());
    case 'G': {
      uint64_t bits = Number<8>();
      Push({.kind = Kind::kFloat, .real = std::bit_cast<double>(__builtin_bswap64(bits))});
      return;
    }
    case 'X':
      return PushText(Kind::kText, Number<4>());
    case 0x8c:
      return PushText(Kind::kText, Number<1>());
    case 0x8d:
      return PushText(Kind::kText, Number<8>());
    case 'U':
    case 'C':
      return PushText(Kind::kBytes, Number<1>());
    case 'T':
    case 'B':
      return PushText(Kind::kBytes, Number<4>());
    case 0x8e:
    case 0x96:
      return PushText(Kind::kBytes, Number<8>());
    default:
      break;
  }
  for (const Refused& refused : kRefused) {
    if (refused.opcode == opcode) return Refuse(Cat("has the opcode ", refused.name, ", which is not read"));
  }
  Refuse(Cat("has the unknown opcode ", absl::StrFormat("0x%02x", opcode)));
}

absl::StatusOr<PickleTree> PickleTree::Parse(std::string_view pickle, size_t max_values) {
  return PickleReader(pickle, max_values).Run();
}

const PickleValue* PickleTree::Find(const PickleValue& value, std::string_view key) const {
  const PickleValue& dict = value.kind == Kind::kObject && value.state != 0 ? values_[value.state] : value;
  if (dict.kind != Kind::kDict && dict.kind != Kind::kObject) return nullptr;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    if (values_[dict.items[i]].text == key) return &values_[dict.items[i + 1]];
  }
  return nullptr;
}

std::string_view PickleTree::CalledBy(const PickleValue& value) const {
  return value.kind == Kind::kObject ? std::string_view(values_[value.callable].text) : std::string_view();
}

}  // namespace msprobe::server
