#pragma once

#include <cstdint>

#include "absl/hash/hash.h"
#include "server/format/storage/structure_summary.h"

namespace msprobe::server {

// A number for (name, kind, direction, count): the same for all fragments of one record. Valid within this process
// only.
inline uint64_t RecordIdentity(const StructureSummary& structure, uint32_t count) {
  return absl::HashOf(structure.name, static_cast<int>(structure.kind), static_cast<int>(structure.direction), count);
}

}  // namespace msprobe::server
