#include "agent/torch/device/device_reading.h"

#include <utility>

namespace msprobe::capture {

core::PendingReading::State DeviceReading::state() const {
  core::MutexLock lock(&mu_);
  return state_;
}

void DeviceReading::RingWhenDone(std::shared_ptr<core::Doorbell> bell) {
  core::MutexLock lock(&mu_);
  if (state_ != State::kUnderWay) return bell->Ring();
  bells_.push_back(std::move(bell));
}

void DeviceReading::Complete(core::Leaf& leaf) {
  core::MutexLock lock(&mu_);
  core::Leaf complete = numbers_;
  complete.shape = leaf.shape;
  complete.is_wide = leaf.is_wide;
  complete.payload = std::move(leaf.payload);
  complete.pending = std::move(leaf.pending);
  leaf = std::move(complete);
}

void DeviceReading::Came(const core::Leaf& numbers) {
  core::MutexLock lock(&mu_);
  numbers_ = numbers;
  numbers_.payload.reset();
  numbers_.pending.reset();
  Settle(State::kCame);
}

void DeviceReading::Lost() {
  core::MutexLock lock(&mu_);
  Settle(State::kLost);
}

void DeviceReading::Settle(State state) {
  state_ = state;
  for (const std::shared_ptr<core::Doorbell>& bell : bells_) bell->Ring();
  bells_.clear();
}

}  // namespace msprobe::capture
