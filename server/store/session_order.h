#pragma once

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "server/format/storage/storage.pb.h"
#include "server/store/catalogue.h"

namespace msprobe::server {

// Whether session `a` began later than `b`. Of sessions that have the same step of the same rank the latest is shown.
//
// Within one boot of one machine the later process counts. (Where a process is killed before any server has heard of
// it, the next process sends what it left, which may then be registered after that process's own session.) Otherwise
// the session that was registered later counts, and between two runs the one whose agent gives the later time.
bool BeganLater(const storage::SessionRow& a, const storage::SessionRow& b);

// The same for epochs of a run. Reads each session once. Threads: one at a time.
class SessionOrder {
 public:
  // Borrowed.
  SessionOrder(const Catalogue* catalogue, uint32_t run) : catalogue_(catalogue), run_(run) {}

  absl::StatusOr<bool> BeganLater(uint32_t epoch, uint32_t other);

 private:
  absl::StatusOr<const storage::SessionRow*> Session(uint32_t epoch);

  const Catalogue* const catalogue_;
  const uint32_t run_;
  std::map<uint32_t, storage::SessionRow> sessions_;
};

}  // namespace msprobe::server
