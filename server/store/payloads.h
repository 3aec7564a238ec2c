#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/format/storage/storage.pb.h"
#include "server/store/change_set.h"
#include "server/store/database.h"
#include "server/store/segments/segment_directory.h"

namespace msprobe::server {

// The payloads of a store, each under the hash of its content, and which runs refer to them.
//
// Threads: every method from any thread.
// 1. Whoever adds references to payloads that are already stored holds deletion_mutex() shared, from looking for the
//    payload until the reference is written.
// 2. A session with holds_payloads adds, with its references, what each of its steps holds. What no step of a run holds
//    any more has no reference of that run.
class Payloads {
 public:
  // The database must outlive this object.
  explicit Payloads(const Database* database) : database_(database) {}

  // The chunks as they were stored, read past the page cache. NotFound: the payload is not here, or not whole.
  absl::Status Read(std::string_view hash, absl::FunctionRef<absl::Status(std::string_view chunk)> visit) const;
  // The chunks that hold some of `size` bytes from `offset` on, each with the offset of its first byte. Where chunks
  // are of one size the others are not read.
  absl::Status ReadRange(std::string_view hash, uint64_t offset, uint64_t size,
                         absl::FunctionRef<absl::Status(uint64_t offset, std::string_view chunk)> visit) const;
  // Whether the payload is here, whole.
  absl::StatusOr<bool> Has(std::string_view hash) const;
  // Sum of the sizes of the distinct payloads that a run refers to.
  absl::StatusOr<uint64_t> ReferencedBytes(uint32_t run) const;

  // Adds what forgets a run's references, the payloads that no other run refers to, and what came of unfinished ones.
  // Returns how many bytes of payloads that frees. Hold deletion_mutex() until the changes are written.
  absl::StatusOr<uint64_t> AddRunDeletion(uint32_t run, const std::vector<storage::SessionRow>& sessions,
                                          ChangeSet& changes) const;
  // Adds that a step of a session with holds_payloads refers to a payload.
  static void AddHold(const storage::SessionRow& session, uint32_t step, std::string_view hash, ChangeSet& changes);
  // The steps of a run, as (epoch, step), that were not released.
  absl::StatusOr<std::set<std::pair<uint32_t, uint32_t>>> HoldingSteps(uint32_t run) const;
  // Adds what releases a step: it holds the payloads that are needed for good, and no others but those that have not
  // come. Repeated, it adds nothing. Returns how many bytes that frees. Hold deletion_mutex() until the changes are
  // written.
  absl::StatusOr<uint64_t> AddRelease(const storage::SessionRow& session, uint32_t step,
                                      absl::FunctionRef<bool(std::string_view hash)> needed, ChangeSet& changes) const;
  absl::Mutex& deletion_mutex() const ABSL_LOCK_RETURNED(deletion_mutex_) { return deletion_mutex_; }

 private:
  // Adds what forgets one reference of a run, and the payload if no other run refers to it. Returns the bytes of that.
  absl::StatusOr<uint64_t> AddDereference(uint32_t run, std::string_view hash, ChangeSet& changes) const;
  // Nothing: it is not here.
  absl::StatusOr<std::optional<std::string>> ReadChunk(const std::string& key, SegmentDirectory::PageCache cache) const;

  const Database* const database_;
  mutable absl::Mutex deletion_mutex_;
};

}  // namespace msprobe::server
