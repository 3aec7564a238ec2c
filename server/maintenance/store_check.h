#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace msprobe::server {

// A part of the store that cannot be read: "run job, rank0, step 3: ..." or "run job, payload 00ff...: ...".
struct Damage {
  std::string where;
  std::string what;
};

struct CheckReport {
  uint64_t runs = 0, steps = 0, records = 0, payloads = 0;
  std::vector<Damage> damages;
};

// Reads everything in the store and hashes every payload. A payload that has not arrived yet is not damage.
// Returns an error if even the list of runs cannot be read.
absl::StatusOr<CheckReport> CheckStore(const Store& store);

}  // namespace msprobe::server
