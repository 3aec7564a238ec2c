#pragma once

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
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "agent/capture/reading/memory_owner.h"
#include "agent/core/pool.h"
#include "agent/core/record.h"
#include "agent/core/session.h"
#include "agent/stats/tensor_view.h"
#include "agent/stats/write_watch.h"

namespace msprobe::capture {

// Statistics and checksums of host memory that has not changed since it was read, so that parameters need not be read
// again step after step.
//
// The kernel watches the memory for writes (stats::WriteWatch). No address, version counter or list of operators is
// trusted, because fused optimizers, collectives, custom operators, .data, numpy and DLPack all write without moving a
// version. Where the kernel cannot watch, nothing is remembered. Only private memory is watched: what is mapped from
// files or shared with other processes can change without a write of this process.
//
// Rules:
// 1. Memory of at least WriteWatch::kSmallest bytes is remembered if it has outlived a step, or at once where its
//    framework says that it will. Memory that is about to be written is not; it is not even noted, as a training step's
//    activations do not outlive it.
// 2. Several views of a tensor are remembered. An entry is for one data pointer, dtype, shape, strides and lazy bit.
// 3. Memory that was written is read again; it is armed again after kPatience steps, twice as many each time.
// 4. What has no owner that tells of its end is forgotten kForgetAfter steps after it was last asked for.
// 5. One answer in kVerifyEvery is read again whole. If that differs while the kernel says that nothing was written,
//    Verify says so and nothing is remembered any more.
// 6. What another thread reads ahead of its first call (ReadAhead) counts if nobody wrote it since. No lock is held
//    while it is read, and nobody waits for it: what is asked for meanwhile is neither known nor remembered.
//
// Thread-safe. Remembering keeps no memory alive.
class RememberedStatistics {
 public:
  static constexpr uint64_t kPatience = 8;
  static constexpr uint64_t kVerifyEvery = 256;
  static constexpr uint64_t kForgetAfter = 64;

  // What a framework says of a tensor's memory, for the length of a call.
  struct Memory {
    const void* id = nullptr;  // of the memory, as long as it lives; null: it must not be remembered
    std::span<const std::byte> bytes;
    bool is_private = false;  // surely; else the kernel is asked
    bool lasts = false;       // it outlives the step
    bool changes = false;     // it is about to be written
    // The owner of what has this id. Null: the framework has none.
    std::shared_ptr<const MemoryOwner> (*owner_of)(const void* id) = nullptr;
  };

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
    const void* id = nullptr;  // of the memory; null: neither known nor to be remembered
    uint64_t generation = 0;
    bool known = false;   // the numbers are in the leaf
    bool verify = false;  // read it all the same, and give what was found to Verify
  };

  // Sets the numbers of `leaf` to those of `view`, which lies in `memory`: remembered ones, or else by `measure`, which
  // sets those of its argument. An answer that proves wrong is reported to `session`, once.
  Place Read(const Memory& memory, const stats::TensorView& view, core::Session& session, core::Leaf& leaf,
             absl::FunctionRef<void(core::Leaf&)> measure);

  // Memory that is read ahead: all of it is one tensor, which surely is private.
  struct Ahead {
    Memory memory;
    std::shared_ptr<const MemoryOwner> owner;  // its answers to MemoryOwner's questions come from any thread
  };
  // Reads memory that was not asked for yet, on a thread that is not the caller's of Read. It takes no reference: the
  // program may write or free the memory meanwhile, and then nothing is remembered. `view`: of plain floats, all of the
  // memory. `room`: as FleetingMemory has it. `goes_on` is asked every so often whether to read on. `measure` sets the
  // numbers of its leaf, of its view. False: nothing is remembered, mostly as it was asked for before. One thread at a
  // time.
  bool ReadAhead(const Ahead& ahead, const stats::TensorView& view, std::span<std::byte> room,
                 absl::FunctionRef<bool()> goes_on,
                 absl::FunctionRef<void(const stats::TensorView&, core::Leaf&)> measure);

  // The steps of Read. Looks up `view`, which lies in `memory`; where it is known, sets the numbers of `leaf`. Call
  // this before reading the memory: if it is to be remembered, it is armed here.
  Place Recall(const Memory& memory, const stats::TensorView& view, core::Leaf* leaf);
  // Keeps what was read after Recall had given `place`.
  void Remember(const Place& place, const stats::TensorView& view, const core::Leaf& leaf);
  // Compares what was read with what Recall had given. False: they differ and nothing was written.
  bool Verify(const Place& place, const stats::TensorView& view, const core::Leaf& recalled, const core::Leaf& read);

  // Bytes of owned memory that were sent before and are the same still, in place of a copy; null: copy them, and tell
  // NameBytes.
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
  // Memory that was armed, until it is freed.
  struct Region {
    std::span<const std::byte> memory;
    bool is_private = false;
    uint64_t next_arm_step = 0;
    uint64_t patience = kPatience;
    // Of the arming: entries are of the present one.
    std::shared_ptr<std::atomic<uint64_t>> generation = core::MakePooled<std::atomic<uint64_t>>(0);
    bool armed = false;
    stats::WriteWatch::Range range;
    std::vector<Entry> entries;
  };
  // Memory that was seen, from when it was first until it is freed.
  struct Seen {
    std::shared_ptr<const MemoryOwner> owner;  // null: unknown
    std::span<const std::byte> memory;
    uint64_t first_step = 0;
    uint64_t last_step = 0;
    std::unique_ptr<Region> region;  // null: it was never armed
  };

  Seen& See(const Memory& memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The region that gave `place`; null where it was written since, or is gone.
  Region* Find(const Place& place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static Entry* FindEntry(Region& region, const stats::TensorView& view);
  static void AddEntry(Region& region, const stats::TensorView& view, const core::Leaf& numbers);
  // False: it was asked for before, or it is gone.
  bool BeginAhead(const Ahead& ahead);
  // Remembers what was read. False: it was asked for meanwhile, or it is gone.
  bool EndAhead(const Ahead& ahead, const stats::TensorView& view, const stats::WriteWatch::Range& range,
                const core::Leaf& numbers);
  void Forget(Seen& seen) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static bool IsGone(const Seen& seen) { return seen.owner != nullptr && seen.owner->expired(); }
  // Lets go of a few owners that are gone: a freed storage's object, kept for our reference to it, would otherwise
  // lie on the program's heap until the step ends, in the way of its next tensors.
  void ForgetDead() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // It is not armed for a while, each time twice as long.
  void Rest(Region& region) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Arm(Region& region) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What is armed there is of memory that was freed and came back.
  void DisarmWithin(std::span<const std::byte> memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Disarm(Region& region) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const stats::WriteWatch> watch_;

  mutable absl::Mutex mu_;
  bool trusted_ ABSL_GUARDED_BY(mu_) = true;
  uint64_t step_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t generations_ ABSL_GUARDED_BY(mu_) = 0;
  Counts counts_ ABSL_GUARDED_BY(mu_);
  core::PooledMap<const void*, Seen> seen_ ABSL_GUARDED_BY(mu_);    // by id
  std::vector<const void*> young_ ABSL_GUARDED_BY(mu_);             // seen in this step for the first time
  size_t next_young_ ABSL_GUARDED_BY(mu_) = 0;                      // to be looked at by ForgetDead
  std::map<const std::byte*, Region*> armed_ ABSL_GUARDED_BY(mu_);  // by where they begin; no two overlap
  std::span<const std::byte> ahead_ ABSL_GUARDED_BY(mu_);           // is read ahead now; nobody else arms it
  std::atomic<bool> ahead_is_wanted_{false};                        // nobody has asked for it since
};

// Whether two leaves hold the same numbers, bit for bit.
bool SameNumbers(const core::Leaf& a, const core::Leaf& b);

}  // namespace msprobe::capture
