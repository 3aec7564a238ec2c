#include "agent/core/queue/dictionary.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "agent/core/content_hash.h"
#include "agent/core/queue/padded.h"
#include "agent/core/str_cat.h"
#include "agent/core/utf8.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::core {
namespace {

void FillNode(const Node& node, v1::Node* out, Dictionary::Slots* slots) {
  switch (node.kind) {
    case NodeKind::kNone:
      out->set_slot(v1::Node::NONE);
      return;
    case NodeKind::kBoolean:
      ++slots->booleans;
      out->set_slot(v1::Node::BOOLEAN);
      return;
    case NodeKind::kInteger:
      ++slots->integers;
      out->set_slot(v1::Node::INTEGER);
      return;
    case NodeKind::kFloat:
      ++slots->floats;
      out->set_slot(v1::Node::FLOAT);
      return;
    case NodeKind::kString:
      ++slots->strings;
      out->set_slot(v1::Node::STRING);
      return;
    case NodeKind::kJson:
      ++slots->strings;
      out->set_slot(v1::Node::JSON);
      return;
    case NodeKind::kList: {
      v1::Node::List* const list = out->mutable_list();
      for (const Node& child : node.children) FillNode(child, list->add_items(), slots);
      return;
    }
    case NodeKind::kDict: {
      v1::Node::Dict* const dict = out->mutable_dict();
      for (const Node& child : node.children) {
        v1::Node::Entry* const entry = dict->add_entries();
        entry->set_key(ToUtf8(child.key));
        FillNode(child, entry->mutable_value(), slots);
      }
      return;
    }
    case NodeKind::kTensor: {
      ++slots->tensors;
      v1::Node::TensorSlot* const tensor = out->mutable_tensor();
      tensor->set_type(ToUtf8(node.type));
      tensor->set_dtype(static_cast<v1::DType>(node.dtype));
      tensor->set_dtype_name(ToUtf8(node.dtype_name));
      tensor->set_device(ToUtf8(node.device));
      tensor->set_requires_grad(node.requires_grad);
      tensor->set_attributes_json(ToUtf8(node.attributes_json));
      tensor->set_is_sparse(node.is_sparse);
      return;
    }
  }
}

// Counts the slots that FillNode makes.
void CountSlots(const v1::Node& node, Dictionary::Slots* slots) {
  switch (node.kind_case()) {
    case v1::Node::kSlot:
      slots->booleans += node.slot() == v1::Node::BOOLEAN;
      slots->integers += node.slot() == v1::Node::INTEGER;
      slots->floats += node.slot() == v1::Node::FLOAT;
      slots->strings += node.slot() == v1::Node::STRING || node.slot() == v1::Node::JSON;
      return;
    case v1::Node::kList:
      for (const v1::Node& item : node.list().items()) CountSlots(item, slots);
      return;
    case v1::Node::kDict:
      for (const v1::Node::Entry& entry : node.dict().entries()) CountSlots(entry.value(), slots);
      return;
    case v1::Node::kTensor:
      ++slots->tensors;
      return;
    default:
      return;
  }
}

constexpr size_t kDictionaryChunkBytes = size_t{64} << 10;
// The most definitions that a restored dictionary may lack, because the session's memory had no room for them.
constexpr size_t kMaxMissingIds = size_t{1} << 20;

// What a stack or a frame takes beside its content: its head and its places in tables, here and where stacks are taken.
constexpr size_t kEntryBytes = 128;

}  // namespace

struct Dictionary::Head {
  Kind kind;
  uint32_t id;
  uint64_t size;  // bytes of the content that follows, padded to a multiple of eight
};

std::string SerializeDeterministic(const google::protobuf::MessageLite& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  static_cast<void>(message.SerializeToCodedStream(&coded));
  coded.Trim();
  return bytes;
}

template <typename Entry>
const Entry* Dictionary::Table<Entry>::Find(uint32_t id) const {
  return id == 0 || id > entries.size() || entries[id - 1].content.data() == nullptr ? nullptr : &entries[id - 1];
}

template <typename Entry>
Entry& Dictionary::Table<Entry>::At(uint32_t id) {
  while (entries.size() < id) entries.emplace_back();
  return entries[id - 1];
}

template <typename Entry>
uint32_t Dictionary::Intern(Kind kind, std::string_view content, Table<Entry>& table) {
  if (const auto found = table.ids.find(absl::string_view(content.data(), content.size())); found != table.ids.end()) {
    return found->second;
  }
  const auto id = static_cast<uint32_t>(table.entries.size() + 1);
  const std::string_view kept = Keep(kind, id, content);
  table.At(id).content = kept;
  table.ids.emplace(absl::string_view(kept.data(), kept.size()), id);
  return id;
}

template <typename Entry>
uint32_t Dictionary::InternBounded(Kind kind, std::string_view content, Table<Entry>& table) {
  const size_t known = table.entries.size();
  if (stack_bytes_ >= stack_room_ && !table.ids.contains(absl::string_view(content.data(), content.size()))) return 0;
  const uint32_t id = Intern(kind, content, table);
  if (table.entries.size() > known) stack_bytes_ += kEntryBytes + Padded(content.size());
  return id;
}

std::string_view Dictionary::Keep(Kind kind, uint32_t id, std::string_view content) {
  const size_t size = sizeof(Head) + Padded(content.size());
  if (chunks_.empty() || chunks_.back().memory.size() - chunks_.back().size < size) {
    Chunk chunk;
    chunk.memory = memory_->AllocateRecords(std::max(size, kDictionaryChunkBytes));
    if (chunk.memory.empty()) throw std::bad_alloc();
    chunk.listing = memory_->List(PieceKind::kDictionary, chunk.memory, {.number = chunks_.size()}, 0);
    chunks_.push_back(std::move(chunk));
  }
  Chunk& chunk = chunks_.back();
  char* const at = reinterpret_cast<char*>(chunk.memory.get()) + chunk.size;
  const Head head{.kind = kind, .id = id, .size = content.size()};
  std::memcpy(at, &head, sizeof(head));
  std::memcpy(at + sizeof(head), content.data(), content.size());
  chunk.size += size;
  chunk.listing.SetUsed(chunk.size);
  return {at + sizeof(head), content.size()};
}

void Dictionary::Restore(std::vector<SessionMemory::Left::Piece> chunks) {
  MutexLock lock(&mu_);
  for (SessionMemory::Left::Piece& piece : chunks) {
    Chunk chunk{.memory = std::move(piece.memory), .listing = std::move(piece.listing), .size = piece.used};
    RestoreChunk(chunk);
    chunks_.push_back(std::move(chunk));
  }
}

void Dictionary::RestoreChunk(const Chunk& chunk) {
  const char* at = reinterpret_cast<const char*>(chunk.memory.get());
  size_t left = chunk.size;
  while (left >= sizeof(Head)) {
    Head head;
    std::memcpy(&head, at, sizeof(head));
    if (head.size > left - sizeof(head) || Padded(head.size) > left - sizeof(head)) return;
    const std::string_view content(at + sizeof(head), head.size);
    const absl::string_view key(content.data(), content.size());
    at += sizeof(head) + Padded(head.size);
    left -= sizeof(head) + Padded(head.size);
    const size_t known =
        structures_.entries.size() + stacks_.entries.size() + parents_.entries.size() + frames_.entries.size();
    if (head.id == 0 || head.id > known + kMaxMissingIds) return;
    if (head.kind == Kind::kStructure) {
      v1::Structure structure;
      if (!structure.ParseFromArray(content.data(), static_cast<int>(content.size()))) continue;
      StructureEntry& entry = structures_.At(head.id);
      entry = {.content = content, .hash = DefinitionHash(content), .slots = {}};
      entry.is_scalars = structure.kind() == v1::RECORD_SCALARS;
      CountSlots(structure.fields(), &entry.slots);
      structures_.ids.emplace(key, head.id);
    } else if (head.kind == Kind::kStack || head.kind == Kind::kStackText) {
      stacks_.At(head.id) = {.content = content, .is_text = head.kind == Kind::kStackText};
      stacks_.ids.emplace(key, head.id);
    } else if (head.kind == Kind::kFrame) {
      frames_.At(head.id).content = content;
      frames_.ids.emplace(key, head.id);
    } else if (head.kind == Kind::kParent) {
      parents_.At(head.id) = {.content = content, .hash = DefinitionHash(content)};
      parents_.ids.emplace(key, head.id);
    }
  }
}

StructureId Dictionary::DefineStructure(const Structure& structure) {
  v1::Structure message;
  message.set_name(structure.pass == 0 ? ToUtf8(structure.name) : Cat(ToUtf8(structure.name), "#", structure.pass));
  message.set_kind(static_cast<v1::RecordKind>(structure.kind));
  message.set_direction(static_cast<v1::Direction>(structure.direction));
  Slots slots;
  FillNode(structure.fields, message.mutable_fields(), &slots);
  const std::string content = SerializeDeterministic(message);
  MutexLock lock(&mu_);
  const StructureId id = Intern(Kind::kStructure, content, structures_);
  StructureEntry& entry = structures_.entries[id - 1];
  if (entry.hash == 0) {
    entry.hash = DefinitionHash(content);
    entry.slots = slots;
    entry.is_scalars = structure.kind == RecordKind::kScalars;
  }
  return id;
}

StackId Dictionary::DefineStack(std::span<const Frame> innermost_first) {
  std::vector<std::string> frames;
  frames.reserve(innermost_first.size());
  for (const Frame& frame : innermost_first) {
    v1::Frame message;
    message.set_path(ToUtf8(frame.path));
    message.set_line(frame.line);
    message.set_function(ToUtf8(frame.function));
    message.set_source(ToUtf8(frame.source));
    frames.push_back(SerializeDeterministic(message));
  }
  std::string ids;
  MutexLock lock(&mu_);
  for (const std::string& frame : frames) {
    const FrameId id = InternBounded(Kind::kFrame, frame, frames_);
    if (id == 0) return 0;
    ids.append(reinterpret_cast<const char*>(&id), sizeof(id));
  }
  return InternBounded(Kind::kStack, ids, stacks_);
}

ParentId Dictionary::DefineParent(std::string_view full_name) {
  MutexLock lock(&mu_);
  const auto found = parents_.ids.find(absl::string_view(full_name.data(), full_name.size()));
  if (found != parents_.ids.end()) return found->second;
  const ParentId id = Intern(Kind::kParent, ToUtf8(full_name), parents_);
  TextEntry& entry = parents_.entries[id - 1];
  entry.hash = DefinitionHash(entry.content);
  return id;
}

std::optional<Dictionary::Hashes> Dictionary::hashes(StructureId structure, ParentId parent) const {
  MutexLock lock(&mu_);
  const StructureEntry* const known = structures_.Find(structure);
  const TextEntry* const named = parents_.Find(parent);
  if (known == nullptr || (parent != 0 && named == nullptr)) return std::nullopt;
  return Hashes{.structure = known->hash, .parent = parent == 0 ? 0 : named->hash};
}

const Dictionary::StructureEntry* Dictionary::structure(StructureId id) const {
  MutexLock lock(&mu_);
  return structures_.Find(id);
}

bool Dictionary::has_stack(StackId id) const {
  MutexLock lock(&mu_);
  return stacks_.Find(id) != nullptr;
}

v1::Stack Dictionary::stack(StackId id) const {
  v1::Stack stack;
  MutexLock lock(&mu_);
  const StackEntry* const entry = stacks_.Find(id);
  if (entry == nullptr) return stack;
  if (entry->is_text) {
    static_cast<void>(stack.ParseFromArray(entry->content.data(), static_cast<int>(entry->content.size())));
    return stack;
  }
  for (size_t at = 0; at + sizeof(FrameId) <= entry->content.size(); at += sizeof(FrameId)) {
    FrameId number = 0;
    std::memcpy(&number, entry->content.data() + at, sizeof(number));
    const TextEntry* const frame = frames_.Find(number);
    if (frame == nullptr) continue;
    static_cast<void>(
        stack.add_frames()->ParseFromArray(frame->content.data(), static_cast<int>(frame->content.size())));
  }
  return stack;
}

const std::string_view* Dictionary::parent(ParentId id) const {
  MutexLock lock(&mu_);
  const TextEntry* const entry = parents_.Find(id);
  return entry == nullptr ? nullptr : &entry->content;
}

StructureId Dictionary::structures() const {
  MutexLock lock(&mu_);
  return static_cast<StructureId>(structures_.entries.size());
}

StackId Dictionary::stacks() const {
  MutexLock lock(&mu_);
  return static_cast<StackId>(stacks_.entries.size());
}

}  // namespace msprobe::core
