#pragma once

#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "server/format/storage/storage.pb.h"
#include "server/store/catalogue.h"

namespace msprobe::server {

// Which of two sessions that have the same step of the same rank began later, and so is shown.
//
// Where both are of one boot of one machine: the later process. What a process leaves that is killed before a server
// has heard of it is sent by the next process, and may be registered behind the session of that. Otherwise: the one
// that was registered later; of two runs, the one that says so.
bool BeganLater(const storage::SessionRow& a, const storage::SessionRow& b);

// The same of epochs of a run. Reads each session once. Threads: one at a time.
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
