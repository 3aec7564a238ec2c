#include "agent/core/dictionary.h"

#include <utility>

#include "agent/core/content_hash.h"
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

}  // namespace

std::string SerializeDeterministic(const google::protobuf::MessageLite& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

template <typename Entry>
uint32_t Dictionary::Table<Entry>::Intern(absl::string_view content) {
  if (const auto found = ids.find(content); found != ids.end()) return found->second;
  Entry& entry = entries.emplace_back();
  entry.content.assign(content.data(), content.size());
  const auto id = static_cast<uint32_t>(entries.size());
  ids.emplace(entry.content, id);
  return id;
}

template <typename Entry>
const Entry* Dictionary::Table<Entry>::Find(uint32_t id) const {
  return id == 0 || id > entries.size() ? nullptr : &entries[id - 1];
}

StructureId Dictionary::DefineStructure(const Structure& structure) {
  v1::Structure message;
  message.set_name(ToUtf8(structure.name));
  message.set_kind(static_cast<v1::RecordKind>(structure.kind));
  message.set_direction(static_cast<v1::Direction>(structure.direction));
  Slots slots;
  FillNode(structure.fields, message.mutable_fields(), &slots);
  const std::string content = SerializeDeterministic(message);
  MutexLock lock(&mu_);
  const StructureId id = structures_.Intern(content);
  StructureEntry& entry = structures_.entries[id - 1];
  if (entry.hash == 0) {
    entry.hash = DefinitionHash(content);
    entry.slots = slots;
  }
  return id;
}

StackId Dictionary::DefineStack(std::span<const Frame> innermost_first) {
  v1::Stack message;
  for (const Frame& frame : innermost_first) {
    v1::Frame* const out = message.add_frames();
    out->set_path(ToUtf8(frame.path));
    out->set_line(frame.line);
    out->set_function(ToUtf8(frame.function));
    out->set_source(ToUtf8(frame.source));
  }
  const std::string content = SerializeDeterministic(message);
  MutexLock lock(&mu_);
  return stacks_.Intern(content);
}

ParentId Dictionary::DefineParent(std::string_view full_name) {
  MutexLock lock(&mu_);
  const auto found = parents_.ids.find(absl::string_view(full_name.data(), full_name.size()));
  return found != parents_.ids.end() ? found->second : parents_.Intern(ToUtf8(full_name));
}

const Dictionary::StructureEntry* Dictionary::structure(StructureId id) const {
  MutexLock lock(&mu_);
  return structures_.Find(id);
}

const PooledString* Dictionary::stack(StackId id) const {
  MutexLock lock(&mu_);
  const TextEntry* const entry = stacks_.Find(id);
  return entry == nullptr ? nullptr : &entry->content;
}

const PooledString* Dictionary::parent(ParentId id) const {
  MutexLock lock(&mu_);
  const TextEntry* const entry = parents_.Find(id);
  return entry == nullptr ? nullptr : &entry->content;
}

}  // namespace msprobe::core
