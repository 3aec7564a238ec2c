#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/format/storage/storage.pb.h"
#include "server/store/change_set.h"
#include "server/store/database.h"

namespace msprobe::server {

// The payloads of a store, each under the hash of its content, and which runs refer to them.
//
// Threads: every method from any thread.
// 1. Whoever adds references to payloads that are already stored holds deletion_mutex() shared, from looking for the
//    payload until the reference is written.
class Payloads {
 public:
  // The database must outlive this object.
  explicit Payloads(const Database* database) : database_(database) {}

  // The chunks as they were stored. NotFound: the payload is not here, or not whole.
  absl::Status Read(std::string_view hash, absl::FunctionRef<absl::Status(std::string_view chunk)> visit) const;
  // The chunks that hold some of `size` bytes from `offset` on, each with the offset of its first byte. Where chunks
  // are of one size the others are not read.
  absl::Status ReadRange(std::string_view hash, uint64_t offset, uint64_t size,
                         absl::FunctionRef<absl::Status(uint64_t offset, std::string_view chunk)> visit) const;
  // Sum of the sizes of the distinct payloads that a run refers to.
  absl::StatusOr<uint64_t> ReferencedBytes(uint32_t run) const;

  // Adds what forgets a run's references, the payloads that no other run refers to, and what came of unfinished ones.
  // Returns how many bytes of payloads that frees. Hold deletion_mutex() until the changes are written.
  absl::StatusOr<uint64_t> AddRunDeletion(uint32_t run, const std::vector<storage::SessionRow>& sessions,
                                          ChangeSet& changes) const;
  absl::Mutex& deletion_mutex() const ABSL_LOCK_RETURNED(deletion_mutex_) { return deletion_mutex_; }

 private:
  // Nothing: it is not here.
  absl::StatusOr<std::optional<std::string>> ReadChunk(const std::string& key) const;

  const Database* const database_;
  mutable absl::Mutex deletion_mutex_;
};

}  // namespace msprobe::server
