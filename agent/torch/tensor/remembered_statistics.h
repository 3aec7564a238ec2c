#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/synchronization/mutex.h"
#include "agent/core/pool.h"
#include "agent/core/record.h"
#include "agent/stats/tensor_view.h"
#include "agent/stats/write_watch.h"

namespace msprobe::capture {

// Statistics and checksums of host memory that has not changed since it was read, so that parameters need not be read
// again step after step.
//
// The kernel watches the memory for writes (stats::WriteWatch). No address, version counter or list of operators is
// trusted, because fused optimizers, collectives, custom operators, .data, numpy and DLPack all write without moving a
// version. Where the kernel cannot watch, nothing is remembered. Only memory of torch's own allocator is watched:
// memory that is mapped from files or shared with other processes can change without a write of this process.
//
// Rules:
// 1. A tensor is remembered if its storage has at least WriteWatch::kSmallest bytes and has outlived a step. A leaf
// that
//    requires grad is remembered at once. In grad mode only frozen tensors are, because an optimizer is about to write
//    the others; these are not even noted, as a training step's activations do not outlive it.
// 2. Several views of a tensor are remembered. An entry is for one data pointer, dtype, shape, strides and lazy bit.
// 3. Memory that was written is read again; it is armed again after kPatience steps, twice as many each time.
// 4. One answer in kVerifyEvery is read again whole. If that differs while the kernel says that nothing was written,
//    Verify says so and nothing is remembered any more.
//
// Thread-safe. Holds weak references to storages, so remembering keeps no memory alive.
class RememberedStatistics {
 public:
  static constexpr uint64_t kPatience = 8;
  static constexpr uint64_t kVerifyEvery = 256;

  // Elements, and how they lie.
  struct Key {
    const void* data;
    stats::DType dtype;
    bool conjugate, negative;
    absl::InlinedVector<int64_t, 8> dims;  // sizes, then strides
    bool operator==(const Key&) const = default;
  };
  static Key KeyOf(const stats::TensorView& view);

  // watch: null remembers nothing.
  explicit RememberedStatistics(std::shared_ptr<const stats::WriteWatch> watch) : watch_(std::move(watch)) {}
  ~RememberedStatistics();

  // Recall's answer for the numbers of one tensor.
  struct Place {
    c10::StorageImpl* storage = nullptr;  // null: neither known nor to be remembered
    uint64_t generation = 0;
    bool known = false;   // the numbers are in the leaf
    bool verify = false;  // read it all the same, and give what was found to Verify
  };

  // Looks up `view`, the memory of `tensor`; where it is known, sets the numbers of `leaf`. Call this before reading
  // the memory: if it is to be remembered, it is armed here.
  Place Recall(const at::Tensor& tensor, const stats::TensorView& view, core::Leaf* leaf);
  // Keeps what was read after Recall had given `place`.
  void Remember(const Place& place, const stats::TensorView& view, const core::Leaf& leaf);
  // Compares what was read with what Recall had given. False: they differ and nothing was written.
  bool Verify(const Place& place, const stats::TensorView& view, const core::Leaf& recalled, const core::Leaf& read);

  // Bytes that were sent before and are the same still, in place of a copy; null: copy them, and tell NameBytes.
  std::shared_ptr<core::Payload> RecallBytes(const Place& place, const stats::TensorView& view);
  // `name` names these bytes. They are recalled once the sender has announced them.
  void NameBytes(const Place& place, const stats::TensorView& view, const std::shared_ptr<core::PayloadName>& name);

  void EndStep();

  // Answers given from memory, and answers found wrong, since the beginning.
  struct Counts {
    uint64_t recalled = 0;
    uint64_t wrong = 0;
  };
  Counts counts() const;

 private:
  struct Entry {
    Key key;
    core::Leaf numbers;
    std::shared_ptr<core::PayloadName> name;  // of its bytes, where they were sent
  };
  // The memory of a storage that was armed, until that is freed.
  struct Region {
    std::span<const std::byte> memory;
    uint64_t next_arm_step = 0;
    uint64_t patience = kPatience;
    // Of the arming: entries are of the present one.
    std::shared_ptr<std::atomic<uint64_t>> generation = core::MakePooled<std::atomic<uint64_t>>(0);
    bool armed = false;
    stats::WriteWatch::Range range;
    std::vector<Entry> entries;
  };
  // A storage that was seen, from when it was first until it is freed.
  struct Seen {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage{c10::intrusive_ptr<c10::StorageImpl>()};
    std::span<const std::byte> memory;
    uint64_t first_step = 0;
    std::unique_ptr<Region> region;  // null: it was never armed
  };

  Seen& See(c10::StorageImpl* storage, std::span<const std::byte> memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The region that gave `place`; null where it was written since, or is gone.
  Region* Find(const Place& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static Entry* FindEntry(Region& region, const stats::TensorView& view);
  void Forget(Seen& seen) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets go of a few storages that are gone: a freed storage's object, kept for our reference to it, would otherwise
  // lie on the program's heap until the step ends, in the way of its next tensors.
  void ForgetDead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Arm(Region& region) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Disarm(Region& region) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const stats::WriteWatch> watch_;

  mutable absl::Mutex mu_;
  bool trusted_ ABSL_GUARDED_BY(mu_) = true;
  uint64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t generations_ ABSL_GUARDED_BY(mu_) = 0;
  Counts counts_ ABSL_GUARDED_BY(mu_);
  core::PooledMap<c10::StorageImpl*, Seen> seen_ ABSL_GUARDED_BY(mu_);
  std::vector<c10::StorageImpl*> young_ ABSL_GUARDED_BY(mu_);       // seen in this step for the first time
  size_t next_young_ ABSL_GUARDED_BY(mu_) = 0;                      // to be looked at by ForgetDead
  std::map<const std::byte*, Region*> armed_ ABSL_GUARDED_BY(mu_);  // by where they begin; no two overlap
};

// Whether two leaves hold the same numbers, bit for bit.
bool SameNumbers(const core::Leaf& a, const core::Leaf& b);

}  // namespace msprobe::capture
