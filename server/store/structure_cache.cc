#include "server/store/structure_cache.h"

namespace msprobe::server {

SharedStructure StructureCache::Find(uint32_t run, uint64_t id) {
  const Key key(run, id);
  absl::MutexLock lock(&mu_);
  if (const auto found = young_.find(key); found != young_.end()) return found->second;
  const auto found = old_.find(key);
  if (found == old_.end()) return nullptr;
  SharedStructure structure = found->second;
  KeepYoung(key, structure);
  return structure;
}

void StructureCache::Keep(uint32_t run, uint64_t id, SharedStructure structure) {
  absl::MutexLock lock(&mu_);
  KeepYoung({run, id}, std::move(structure));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): it is moved into the map
void StructureCache::KeepYoung(const Key& key, SharedStructure structure) {
  const size_t bytes = sizeof(DecodedStructure) + structure->structure.SpaceUsedLong();
  if (!young_.try_emplace(key, std::move(structure)).second) return;
  young_bytes_ += bytes;
  if (young_bytes_ <= max_bytes_ / 2) return;
  old_ = std::move(young_);
  young_ = {};
  young_bytes_ = 0;
}

}  // namespace msprobe::server
