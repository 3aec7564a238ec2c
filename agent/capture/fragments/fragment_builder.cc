#include "agent/capture/fragments/fragment_builder.h"

#include <cstring>

namespace msprobe::capture {
namespace {

// Marks of the signature. Text follows as a 32-bit length and bytes.
enum Mark : char {
  kKey = 'k',
  kBeginList = '[',
  kBeginDict = '{',
  kEnd = ']',
  kNone = 'n',
  kBoolean = 'b',
  kInteger = 'i',
  kFloat = 'f',
  kString = 's',
  kJson = 'j',
  kTensor = 't',  // dtype byte, flags byte, then type, device, dtype name, attributes as text
};
constexpr char kRequiresGrad = 1;
constexpr char kSparse = 2;

class SignatureReader {
 public:
  explicit SignatureReader(std::string_view signature) : rest_(signature) {}

  bool done() const { return rest_.empty(); }
  char Byte() {
    const char byte = rest_.front();
    rest_.remove_prefix(1);
    return byte;
  }
  uint32_t Number() {
    uint32_t number;
    std::memcpy(&number, rest_.data(), sizeof(number));
    rest_.remove_prefix(sizeof(number));
    return number;
  }
  std::string Text() {
    const uint32_t size = Number();
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }

  // Reads nodes into `parent` until its end mark, or the end of the signature.
  void Children(core::Node& parent) {
    std::string key;
    while (!done()) {
      const char mark = Byte();
      if (mark == kEnd) return;
      if (mark == kKey) {
        key = Text();
        continue;
      }
      core::Node& node = parent.children.emplace_back();
      node.key = std::move(key);
      key.clear();
      Fill(node, mark);
    }
  }

 private:
  void Fill(core::Node& node, char mark) {
    switch (mark) {
      case kBeginList:
        node.kind = core::NodeKind::kList;
        return Children(node);
      case kBeginDict:
        node.kind = core::NodeKind::kDict;
        return Children(node);
      case kBoolean:
        node.kind = core::NodeKind::kBoolean;
        return;
      case kInteger:
        node.kind = core::NodeKind::kInteger;
        return;
      case kFloat:
        node.kind = core::NodeKind::kFloat;
        return;
      case kString:
        node.kind = core::NodeKind::kString;
        return;
      case kJson:
        node.kind = core::NodeKind::kJson;
        return;
      case kTensor: {
        node.kind = core::NodeKind::kTensor;
        node.dtype = static_cast<uint8_t>(Byte());
        const char flags = Byte();
        node.requires_grad = (flags & kRequiresGrad) != 0;
        node.is_sparse = (flags & kSparse) != 0;
        node.type = Text();
        node.device = Text();
        node.dtype_name = Text();
        node.attributes_json = Text();
        return;
      }
      default:
        node.kind = core::NodeKind::kNone;
    }
  }

  std::string_view rest_;
};

}  // namespace

void FragmentBuilder::Start(std::string_view name, core::RecordKind kind, core::Direction direction, uint32_t pass) {
  signature_.clear();
  leaves_.clear();
  dims_.clear();
  ranks_.clear();
  integers_.clear();
  floats_.clear();
  booleans_.clear();
  texts_.clear();
  producers_.clear();
  outputs_.clear();
  kind_ = kind;
  depth_ = 0;
  signature_.push_back(static_cast<char>(kind));
  signature_.push_back(static_cast<char>(direction));
  Number(pass);
  Text(name);
  header_size_ = signature_.size();
}

void FragmentBuilder::Number(uint32_t number) {
  signature_.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

void FragmentBuilder::Text(std::string_view text) {
  Number(static_cast<uint32_t>(text.size()));
  signature_.append(text);
}

FragmentBuilder::Role FragmentBuilder::RoleOf(std::string_view key) const {
  if (kind_ == core::RecordKind::kDebug) return Role::kOther;
  if (kind_ == core::RecordKind::kParametersGrad || key == "output") return Role::kOutput;
  return key.starts_with("input") ? Role::kInput : Role::kOther;
}

void FragmentBuilder::Key(std::string_view key) {
  if (depth_ == 0) role_ = RoleOf(key);
  signature_.push_back(kKey);
  Text(key);
}

void FragmentBuilder::BeginList() {
  ++depth_;
  signature_.push_back(kBeginList);
}

void FragmentBuilder::BeginDict() {
  ++depth_;
  signature_.push_back(kBeginDict);
}

void FragmentBuilder::End() {
  --depth_;
  signature_.push_back(kEnd);
}

void FragmentBuilder::None() { signature_.push_back(kNone); }

void FragmentBuilder::Boolean(bool value) {
  signature_.push_back(kBoolean);
  booleans_.push_back(value ? 1 : 0);
}

void FragmentBuilder::Integer(int64_t value) {
  signature_.push_back(kInteger);
  integers_.push_back(value);
}

void FragmentBuilder::Float(double value) {
  signature_.push_back(kFloat);
  floats_.push_back(value);
}

void FragmentBuilder::String(std::string_view value) {
  signature_.push_back(kString);
  texts_.emplace_back(value);
}

void FragmentBuilder::Json(std::string_view text) {
  signature_.push_back(kJson);
  texts_.emplace_back(text);
}

void FragmentBuilder::Tensor(const TensorReading& reading) {
  signature_.push_back(kTensor);
  signature_.push_back(static_cast<char>(reading.dtype));
  signature_.push_back(
      static_cast<char>((reading.requires_grad ? kRequiresGrad : 0) | (reading.is_sparse ? kSparse : 0)));
  Text(reading.type);
  Text(reading.device);
  Text(reading.dtype_name);
  Text(reading.attributes_json);
  if (role_ == Role::kOutput && reading.identity.storage.get() != nullptr) {
    outputs_.push_back({reading.identity, reading.sight.time, static_cast<uint32_t>(leaves_.size())});
  }
  producers_.push_back(role_ == Role::kInput ? reading.sight.producer : Producer());
  leaves_.push_back(reading.leaf);
  dims_.insert(dims_.end(), reading.shape.begin(), reading.shape.end());
  ranks_.push_back(static_cast<uint32_t>(reading.shape.size()));
}

void FragmentBuilder::DropPayloads() {
  for (core::Leaf& leaf : leaves_) leaf.payload.reset();
}

core::Structure FragmentBuilder::BuildStructure() const {
  SignatureReader reader(signature_);
  core::Structure structure;
  structure.kind = static_cast<core::RecordKind>(reader.Byte());
  structure.direction = static_cast<core::Direction>(reader.Byte());
  structure.pass = reader.Number();
  structure.name = reader.Text();
  structure.fields.kind = core::NodeKind::kDict;
  reader.Children(structure.fields);
  return structure;
}

namespace {

// Unknown where the edge is too long for its fields.
core::Edge EdgeTo(const Producer& producer, uint64_t ordinal) {
  core::Edge edge{.kind = producer.kind};
  if (!edge.names_producer()) return edge;
  const auto distance = static_cast<int64_t>(ordinal - producer.ordinal);
  edge.leaf = static_cast<uint16_t>(producer.leaf);
  edge.distance = static_cast<int32_t>(distance);
  return edge.leaf == producer.leaf && edge.distance == distance ? edge : core::Edge();
}

}  // namespace

void FragmentBuilder::Fill(core::Fragment& fragment) {
  size_t begin = 0;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    leaves_[i].shape = std::span<const int64_t>(dims_.data() + begin, ranks_[i]);
    begin += ranks_[i];
    leaves_[i].edge = EdgeTo(producers_[i], fragment.ordinal);
  }
  strings_.assign(texts_.begin(), texts_.end());
  fragment.leaves = leaves_;
  fragment.integers = integers_;
  fragment.floats = floats_;
  static_assert(sizeof(bool) == sizeof(char));
  fragment.booleans = std::span<const bool>(reinterpret_cast<const bool*>(booleans_.data()), booleans_.size());
  fragment.strings = strings_;
}

}  // namespace msprobe::capture
