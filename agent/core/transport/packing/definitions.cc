#include "agent/core/transport/packing/definitions.h"

#include <string>
#include <utility>

#include "agent/core/content_hash.h"

namespace msprobe::core {

uint64_t Definitions::AddStructure(const Dictionary::StructureEntry& structure, v1::Batch* batch, size_t* bytes) {
  if (!sent_.contains(structure.hash)) Add(Of(structure), batch, bytes);
  return structure.hash;
}

uint64_t Definitions::AddStack(StackId id, v1::Batch* batch, size_t* bytes) {
  const auto [hash, unknown] = stack_hashes_.try_emplace(id, 0);
  if (unknown) {
    v1::Definition definition = Resolved(dictionary_.stack(id));
    hash->second = definition.id();
    if (!sent_.contains(definition.id())) Add(std::move(definition), batch, bytes);
  }
  return hash->second;
}

void Definitions::CopyAll(v1::Batch* batch) {
  absl::flat_hash_set<uint64_t> copied;
  const auto copy = [&](v1::Definition definition) {
    sent_.insert(definition.id());
    if (copied.insert(definition.id()).second) *batch->add_definitions() = std::move(definition);
  };
  for (StructureId id = 1; id <= dictionary_.structures(); ++id) {
    if (const Dictionary::StructureEntry* const structure = dictionary_.structure(id)) copy(Of(*structure));
  }
  for (StackId id = 1; id <= dictionary_.stacks(); ++id) {
    if (!dictionary_.has_stack(id)) continue;
    v1::Definition definition = Resolved(dictionary_.stack(id));
    stack_hashes_[id] = definition.id();
    copy(std::move(definition));
  }
}

v1::Definition Definitions::Of(const Dictionary::StructureEntry& structure) {
  v1::Definition definition;
  definition.set_id(structure.hash);
  definition.set_structure(structure.content.data(), structure.content.size());
  return definition;
}

v1::Definition Definitions::Resolved(const v1::Stack& given) {
  v1::Stack stack;
  for (const v1::Frame& frame : given.frames()) {
    std::string source = frame.source();
    if (source.empty()) source = source_lines_.Line(frame.path(), frame.line());
    if (source.empty()) continue;
    v1::Frame& resolved = *stack.add_frames();
    resolved = frame;
    resolved.set_source(std::move(source));
  }
  v1::Definition definition;
  definition.set_stack(SerializeDeterministic(stack));
  definition.set_id(DefinitionHash(definition.stack()));
  return definition;
}

void Definitions::Add(v1::Definition definition, v1::Batch* batch, size_t* bytes) {
  sent_.insert(definition.id());
  *bytes += definition.ByteSizeLong();
  *batch->add_definitions() = std::move(definition);
}

}  // namespace msprobe::core
