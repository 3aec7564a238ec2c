#pragma once

#include <cstdint>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "server/format/storage/structure_summary.h"
#include "server/store/definitions.h"

namespace msprobe::server {

// The structures and stacks of its run that a session refers to. Each is read from the store once.
//
// Threads: one at a time.
class SessionDefinitions {
 public:
  using Structures = absl::flat_hash_map<uint64_t, std::unique_ptr<StructureSummary>>;
  using Stacks = absl::flat_hash_set<uint64_t>;

  // Borrows what is stored.
  SessionDefinitions(const Definitions* stored, uint32_t run) : stored_(stored), run_(run) {}

  // Null: the run has no such structure. Valid as long as this object.
  const StructureSummary* Structure(uint64_t id);
  bool HasStack(uint64_t id);
  // Adds what has been stored for this session. Takes the structures that are new here.
  void Add(Structures& structures, const Stacks& stacks);

 private:
  const Definitions* stored_;
  uint32_t run_;
  Structures structures_;
  Stacks stacks_;
};

}  // namespace msprobe::server
