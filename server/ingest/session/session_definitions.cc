#include "server/ingest/session/session_definitions.h"

#include <utility>

#include "server/format/storage/value.h"

namespace msprobe::server {

const StructureSummary* SessionDefinitions::Structure(uint64_t id) {
  if (auto found = structures_.find(id); found != structures_.end()) return found->second.get();
  auto definition = stored_->Find(run_, id);
  if (!definition.ok() || definition->kind != DefinitionKind::kStructure) return nullptr;
  v1::Structure structure;
  if (!structure.ParseFromString(definition->bytes)) return nullptr;
  auto summary = Summarize(structure);
  if (!summary.ok()) return nullptr;
  return structures_.emplace(id, std::make_unique<StructureSummary>(*std::move(summary))).first->second.get();
}

bool SessionDefinitions::HasStack(uint64_t id) {
  if (stacks_.contains(id)) return true;
  auto definition = stored_->Find(run_, id);
  if (!definition.ok() || definition->kind != DefinitionKind::kStack) return false;
  stacks_.insert(id);
  return true;
}

void SessionDefinitions::Add(Structures& structures, const Stacks& stacks) {
  for (auto& [id, summary] : structures) structures_.try_emplace(id, std::move(summary));
  stacks_.insert(stacks.begin(), stacks.end());
}

}  // namespace msprobe::server
