#include "server/store/definitions.h"

#include "absl/strings/str_format.h"
#include "server/format/storage/key.h"

namespace msprobe::server {

absl::StatusOr<StoredDefinition> Definitions::Find(uint32_t run, uint64_t id) const {
  auto value = database_->Get(Family::kMeta, DefinitionKey(run, id));
  if (!value.ok()) return value.status();
  if (!value->has_value()) return absl::NotFoundError(absl::StrFormat("run %d has no definition %016x", run, id));
  return DecodeDefinition(**value);
}

absl::StatusOr<SharedStructure> Definitions::Structure(uint32_t run, uint64_t id) const {
  if (SharedStructure known = structures_.Find(run, id); known != nullptr) return known;
  auto definition = Find(run, id);
  if (!definition.ok()) return definition.status();
  if (definition->kind != DefinitionKind::kStructure) {
    return absl::DataLossError("the definition of a structure is that of something else");
  }
  auto structure = DecodeStructure(definition->bytes);
  if (structure.ok()) structures_.Keep(run, id, *structure);
  return structure;
}

absl::StatusOr<std::vector<v1::Frame>> Definitions::Stack(uint32_t run, uint64_t id) const {
  auto definition = Find(run, id);
  if (!definition.ok()) return definition.status();
  v1::Stack stack;
  if (definition->kind != DefinitionKind::kStack || !stack.ParseFromString(definition->bytes)) {
    return absl::DataLossError("the definition of a stack does not parse as one");
  }
  return std::vector<v1::Frame>(stack.frames().begin(), stack.frames().end());
}

void Definitions::AddRunDeletion(uint32_t run, ChangeSet& changes) const {
  changes.DeletePrefix(Family::kMeta, MetaPrefix(MetaSpace::kDefinition, run));
}

}  // namespace msprobe::server
