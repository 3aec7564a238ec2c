#include "agent/core/transport/packing/definitions.h"

#include <utility>

#include "agent/core/content_hash.h"
#include "agent/core/utf8.h"

namespace msprobe::core {

uint64_t Definitions::AddStructure(const Dictionary::StructureEntry& structure, v1::Batch* batch, size_t* bytes) {
  if (!sent_.contains(structure.hash)) Add(Of(structure), batch, bytes);
  return structure.hash;
}

uint64_t Definitions::AddStack(StackId id, v1::Batch* batch, size_t* bytes) {
  const auto [hash, unknown] = stack_hashes_.try_emplace(id, 0);
  if (unknown) {
    const v1::Definition definition = Resolved(*dictionary_.stack(id));
    if (!sent_.contains(definition.id())) Add(definition, batch, bytes);
    hash->second = definition.id();
  }
  return hash->second;
}

void Definitions::CopyAll(v1::Batch* batch) {
  for (StructureId id = 1; id <= dictionary_.structures(); ++id) {
    const Dictionary::StructureEntry* const structure = dictionary_.structure(id);
    if (structure != nullptr && !sent_.contains(structure->hash)) sent_.emplace(structure->hash, Of(*structure));
  }
  for (StackId id = 1; id <= dictionary_.stacks(); ++id) {
    const std::string_view* const stack = dictionary_.stack(id);
    if (stack == nullptr) continue;
    const auto [hash, unknown] = stack_hashes_.try_emplace(id, 0);
    if (!unknown) continue;
    const v1::Definition definition = Resolved(*stack);
    hash->second = definition.id();
    sent_.emplace(definition.id(), definition);
  }
  for (const auto& [id, definition] : sent_) *batch->add_definitions() = definition;
}

v1::Definition Definitions::Of(const Dictionary::StructureEntry& structure) {
  v1::Definition definition;
  definition.set_id(structure.hash);
  definition.set_structure(structure.content.data(), structure.content.size());
  return definition;
}

v1::Definition Definitions::Resolved(std::string_view serialized) {
  v1::Stack given, stack;
  static_cast<void>(given.ParseFromArray(serialized.data(), static_cast<int>(serialized.size())));
  for (v1::Frame& frame : *given.mutable_frames()) {
    if (frame.source().empty()) frame.set_source(ToUtf8(source_lines_.Line(frame.path(), frame.line())));
    if (!frame.source().empty()) *stack.add_frames() = std::move(frame);
  }
  v1::Definition definition;
  definition.set_stack(SerializeDeterministic(stack));
  definition.set_id(DefinitionHash(definition.stack()));
  return definition;
}

void Definitions::Add(const v1::Definition& definition, v1::Batch* batch, size_t* bytes) {
  *batch->add_definitions() = definition;
  *bytes += definition.ByteSizeLong();
  sent_.emplace(definition.id(), definition);
}

}  // namespace msprobe::core
