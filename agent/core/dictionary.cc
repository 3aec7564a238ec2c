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

template <typename Id, typename Entry>
Id Intern(std::string key, Entry entry, std::deque<Entry>* entries, absl::flat_hash_map<std::string, Id>* ids) {
  const auto [it, inserted] = ids->try_emplace(std::move(key), static_cast<Id>(entries->size() + 1));
  if (inserted) entries->push_back(std::move(entry));
  return it->second;
}

template <typename Entry>
const Entry* Find(const std::deque<Entry>& entries, uint32_t id) {
  return id == 0 || id > entries.size() ? nullptr : &entries[id - 1];
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

StructureId Dictionary::DefineStructure(const Structure& structure) {
  v1::Structure message;
  message.set_name(ToUtf8(structure.name));
  message.set_kind(static_cast<v1::RecordKind>(structure.kind));
  message.set_direction(static_cast<v1::Direction>(structure.direction));
  StructureEntry entry;
  FillNode(structure.fields, message.mutable_fields(), &entry.slots);
  entry.content = SerializeDeterministic(message);
  entry.hash = DefinitionHash(entry.content);
  std::string key = entry.content;
  MutexLock lock(&mu_);
  return Intern(std::move(key), std::move(entry), &structures_, &structure_ids_);
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
  std::string key = SerializeDeterministic(message);
  std::vector<Frame> frames(innermost_first.begin(), innermost_first.end());
  MutexLock lock(&mu_);
  return Intern(std::move(key), std::move(frames), &stacks_, &stack_ids_);
}

ParentId Dictionary::DefineParent(std::string_view full_name) {
  std::string name = ToUtf8(full_name);
  std::string key = name;
  MutexLock lock(&mu_);
  return Intern(std::move(key), std::move(name), &parents_, &parent_ids_);
}

const Dictionary::StructureEntry* Dictionary::structure(StructureId id) const {
  MutexLock lock(&mu_);
  return Find(structures_, id);
}

const std::vector<Frame>* Dictionary::stack(StackId id) const {
  MutexLock lock(&mu_);
  return Find(stacks_, id);
}

const std::string* Dictionary::parent(ParentId id) const {
  MutexLock lock(&mu_);
  return Find(parents_, id);
}

}  // namespace msprobe::core
