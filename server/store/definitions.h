#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"
#include "server/format/storage/structure_summary.h"
#include "server/format/storage/value.h"
#include "server/store/change_set.h"
#include "server/store/database.h"
#include "server/store/structure_cache.h"

namespace msprobe::server {

// The structures and stacks of each run, under their ids: each is stored once, however many records refer to it.
//
// Threads: every method from any thread.
class Definitions {
 public:
  // The database must outlive this object.
  explicit Definitions(const Database* database) : database_(database) {}

  // NotFound: the run has no definition of that id.
  absl::StatusOr<StoredDefinition> Find(uint32_t run, uint64_t id) const;
  // NotFound as Find. DataLoss: the definition is something else, or damaged.
  absl::StatusOr<SharedStructure> Structure(uint32_t run, uint64_t id) const;
  // Innermost frame first. Errors as Structure.
  absl::StatusOr<std::vector<v1::Frame>> Stack(uint32_t run, uint64_t id) const;

  // Adds what forgets all definitions of a run.
  void AddRunDeletion(uint32_t run, ChangeSet& changes) const;

 private:
  const Database* const database_;
  mutable StructureCache structures_;
};

}  // namespace msprobe::server
