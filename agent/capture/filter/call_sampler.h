#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "agent/core/config/config.h"

namespace msprobe::capture {

// Task check: which calls are captured, decided where they begin, so that the cost of a step stays within a budget
// (CheckConfig).
//
// 1. A call whose signature was not taken before goes first. While steps have to leave such calls out, they take no
//    others.
// 2. The others are taken in turn: a step goes on at the call where the one before ran out of budget.
// 3. Bytes of a step never exceed the budget. A call is taken if its inputs and what is expected to follow fit; what
//    does not fit in the end is not kept.
// 4. No call is taken once the time is spent: that of the program's threads, and what others need to send the calls.
//    What is spent over it is taken off the next steps'.
// 5. Nothing of this depends on what tensors hold. Without a budget of time it is the same in every run of a program
//    that makes the same calls.
// 6. Sample::kIdentity takes a share of all calls by their identity alone. The share is a power of two, of which the
//    step before would have fitted into the budget. So two runs of a program take the same calls, also where one has
//    begun later or has some calls that the other has not; and the calls of a smaller share are among those of a larger
//    one. It has no budget of time unless one is given.
//
// Thread-safe. Memory: at most kMaxSignatures signatures; further ones count as taken before.
class CallSampler {
 public:
  static constexpr size_t kMaxSignatures = 65'536;

  // What is seen of a call before it runs.
  struct Sight {
    uint64_t signature = 0;    // of the operator and of the dtypes and shapes of its tensors
    uint64_t input_bytes = 0;  // of these tensors
    bool has_gradients = false;
    uint64_t identity = 0;  // IdentityOf the call

    // Tells calls apart by one more number: a dtype, or a size.
    void Mix(uint64_t more) {
      signature = (signature ^ more) * 0x9E3779B97F4A7C15u;
      signature ^= signature >> 29;
    }
  };
  // Spread evenly over all numbers, and the same in every process. place: numbers that tell calls of the name apart.
  static uint64_t IdentityOf(std::string_view name, std::initializer_list<uint32_t> place);
  using Clock = absl::Time (*)();

  explicit CallSampler(const core::CheckConfig& config, Clock clock = nullptr);

  // Whether a call is captured. Asked once for each call that no other filter leaves out.
  bool Takes(const Sight& sight);
  // A call that was taken has ended, with so many bytes of outputs.
  void Learn(const Sight& sight, uint64_t output_bytes);
  // Whether a tensor of a call that was taken is kept; then it counts.
  bool Keeps(uint64_t bytes);
  uint64_t kept_bytes() const { return kept_.load(std::memory_order_relaxed); }

  // For as long as it lives, the calling thread captures. Null: nothing is counted.
  class Cost {
   public:
    explicit Cost(CallSampler* sampler)
        : sampler_(sampler), since_(sampler == nullptr ? absl::Time() : sampler->Now()) {}
    ~Cost() {
      if (sampler_ != nullptr) sampler_->Spend(sampler_->Now() - since_);
    }
    Cost(const Cost&) = delete;
    Cost& operator=(const Cost&) = delete;

   private:
    CallSampler* const sampler_;
    const absl::Time since_;
  };

  // sending: processor time that was spent on sending since the step before.
  void EndStep(absl::Duration sending = absl::ZeroDuration());

 private:
  struct Known {
    uint64_t output_bytes = 0;
    bool too_large = false;  // for any step
  };

  absl::Time Now() const { return clock_(); }
  void Spend(absl::Duration time) { spent_ns_.fetch_add(absl::ToInt64Nanoseconds(time), std::memory_order_relaxed); }
  bool TimeIsLeft() const { return spent_ns_.load(std::memory_order_relaxed) < time_ns_; }
  bool TakesByIdentity(const Sight& sight, const Known& known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TakesFirst(const Sight& sight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TakesInTurn(const Sight& sight, const Known& known, uint64_t place) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What a call may take in all.
  static uint64_t Expected(const Sight& sight, uint64_t output_bytes);

  const core::CheckConfig config_;
  const Clock clock_;

  std::atomic<uint64_t> kept_{0};
  std::atomic<int64_t> spent_ns_{0};
  std::atomic<int64_t> time_ns_;  // of this step

  absl::Mutex mu_;
  absl::flat_hash_map<uint64_t, Known> known_ ABSL_GUARDED_BY(mu_);  // by signature
  absl::Time began_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();     // the step's first call
  uint64_t reserved_ ABSL_GUARDED_BY(mu_) = 0;                       // bytes
  uint64_t place_ ABSL_GUARDED_BY(mu_) = 0;                          // of the next call in the step
  uint64_t turn_ ABSL_GUARDED_BY(mu_) = 0;                           // the place that the step goes on at
  uint64_t next_turn_ ABSL_GUARDED_BY(mu_) = 0;                      // with ran_out_
  uint64_t step_bytes_ ABSL_GUARDED_BY(mu_) = 0;                     // that the step's calls would take, all of them
  uint64_t largest_identity_ ABSL_GUARDED_BY(mu_) = std::numeric_limits<uint64_t>::max();  // that is taken
  bool ran_out_ ABSL_GUARDED_BY(mu_) = false;
  bool left_out_ ABSL_GUARDED_BY(mu_) = false;    // a call that would have been the first of its signature
  bool only_first_ ABSL_GUARDED_BY(mu_) = false;  // in this step
};

}  // namespace msprobe::capture
