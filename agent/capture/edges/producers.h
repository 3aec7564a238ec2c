#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "agent/capture/edges/tensor_identity.h"
#include "agent/core/pool.h"
#include "agent/core/record.h"

namespace msprobe::capture {

// An output of a record: the fragment by its ordinal, and the tensor's number among the fragment's.
struct Producer {
  core::EdgeKind kind = core::EdgeKind::kUnknown;
  uint64_t ordinal = 0;
  uint32_t leaf = 0;
};

// Which record gave out the memory that a tensor shows: the edges of a step's graph. Known are the outputs of the
// records of this step; nothing is known of another step's.
//
// Rules:
// 1. A storage is known by a weak reference, never by its address alone, so memory that was freed and came back is
//    another storage. What was written through another storage of the same memory (numpy, DLPack) is not seen.
// 2. Of several outputs in one storage, one with the tensor's own layout and version is its producer; else the last one
//    that overlaps it. So the producer of what an in-place operation changed is that operation.
// 3. A module gives out what a call inside it made: the call is the producer, and the module tree tells the rest. A
//    record that hands on what came from before it (Identity, contiguous) is a producer.
// 4. A bounded table: kMaxTensors outputs, at most 16 MiB. What found no room makes later answers unknown, never wrong.
//
// Allocates only while the table grows. Thread-safe.
class Producers {
 public:
  static constexpr size_t kMaxTensors = size_t{1} << 16;
  static constexpr uint32_t kMaxInStorage = 64;  // outputs that are known of one storage: the last ones

  explicit Producers(size_t max_tensors = kMaxTensors) : max_tensors_(max_tensors) {}

  struct Sight {
    Producer producer;
    uint64_t time = 0;  // of the look, for Add
  };
  // The producer of a tensor as it is now.
  Sight Look(const TensorIdentity& tensor);

  // A record gave out a tensor as it was at `time`. producer: the record's fragment, whatever its kind. begun: the
  // ordinal that the record began with. Ignored if the step ended after `time`.
  void Add(const TensorIdentity& tensor, uint64_t time, const Producer& producer, uint64_t begun);

  void EndStep();

  size_t tensors() const;  // that are known

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};

  struct Output {
    uint64_t layout = 0;
    uint64_t ordinal = 0;
    uint64_t time = 0;
    int64_t begin = 0;
    int64_t end = 0;
    uint32_t leaf = 0;
    uint32_t version = 0;
    bool has_version = false;
    uint32_t older = kNone;  // of the same storage, or of the free list
  };
  struct Storage {
    StorageReference reference;
    const void* memory = nullptr;
    uint32_t newest = kNone;
    uint32_t outputs = 0;
    bool forgot = false;  // older outputs, for lack of room
  };

  static bool SameVersion(const Output& output, const TensorIdentity& tensor) {
    return output.has_version && tensor.has_version && output.version == tensor.version;
  }
  Producer Find(const TensorIdentity& tensor) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The storage's place in storages_, a new one where it is not there.
  Storage& StorageOf(const TensorIdentity& tensor) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes the output with this layout out of the storage's list; kNone: there is none.
  uint32_t Unlink(Storage& storage, uint64_t layout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  uint32_t Allocate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // kNone: there is no room
  void ForgetOldest(Storage& storage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetOutputs(Storage& storage) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets go of a few storages that are gone, so that their objects do not lie on the program's heap until the step
  // ends.
  void ForgetDead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t max_tensors_;

  mutable absl::Mutex mu_;
  core::PooledMap<const void*, uint32_t> places_ ABSL_GUARDED_BY(mu_);  // of storages_, by their address
  core::PooledVector<Storage> storages_ ABSL_GUARDED_BY(mu_);
  core::PooledVector<Output> outputs_ ABSL_GUARDED_BY(mu_);
  uint32_t free_ ABSL_GUARDED_BY(mu_) = kNone;  // of outputs_
  size_t known_ ABSL_GUARDED_BY(mu_) = 0;
  size_t next_looked_at_ ABSL_GUARDED_BY(mu_) = 0;  // of storages_, by ForgetDead
  uint64_t time_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t step_began_ ABSL_GUARDED_BY(mu_) = 0;  // in the time of Sight
  bool forgot_ ABSL_GUARDED_BY(mu_) = false;      // a storage, for lack of room
};

}  // namespace msprobe::capture
