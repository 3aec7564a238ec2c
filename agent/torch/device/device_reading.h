#pragma once

#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "agent/core/doorbell.h"
#include "agent/core/mutex.h"
#include "agent/core/record.h"

namespace msprobe::capture {

// The reading of one tensor while it is on its way. The device reader's thread settles it; the sender takes it up.
//
// Threads: any.
class DeviceReading : public core::PendingReading {
 public:
  State state() const override;
  void RingWhenDone(std::shared_ptr<core::Doorbell> bell) override;
  void Complete(core::Leaf& leaf) override;

  // To be called once. `numbers` has the numbers and checksums; its shape, payload and pending are not looked at.
  void Came(const core::Leaf& numbers);
  void Lost();

 private:
  void Settle(State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable core::Mutex mu_;
  State state_ ABSL_GUARDED_BY(mu_) = State::kUnderWay;
  core::Leaf numbers_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<core::Doorbell>> bells_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::capture
