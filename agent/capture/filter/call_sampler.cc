#include "agent/capture/filter/call_sampler.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace msprobe::capture {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

CallSampler::CallSampler(const core::CheckConfig& config, Clock clock)
    : config_(config),
      clock_(clock == nullptr ? &SteadyNow : clock),
      // The first step has none before it.
      time_ns_(config.budget_time == absl::ZeroDuration() ? kUnlimited : absl::ToInt64Nanoseconds(config.budget_time)) {
}

bool CallSampler::Takes(const Sight& sight) {
  absl::MutexLock lock(&mu_);
  if (place_ == 0) began_ = Now();
  const uint64_t place = place_++;
  if (ran_out_ && left_out_) return false;
  const auto found = known_.find(sight.signature);
  const Known known = found == known_.end() ? Known{.output_bytes = sight.input_bytes} : found->second;
  if (config_.sample == core::CheckConfig::Sample::kIdentity) return TakesByIdentity(sight, known);
  if (found == known_.end() && known_.size() < kMaxSignatures) return TakesFirst(sight);
  return TakesInTurn(sight, known, place);
}

uint64_t CallSampler::IdentityOf(std::string_view name, std::initializer_list<uint32_t> place) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, then the finish of MurmurHash3
  const auto add = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const char byte : name) add(static_cast<uint8_t>(byte));
  for (const uint32_t number : place) {
    for (int shift = 0; shift < 32; shift += 8) add(static_cast<uint8_t>(number >> shift));
  }
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccd;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53;
  return hash ^ (hash >> 33);
}

bool CallSampler::TakesByIdentity(const Sight& sight, const Known& known) {
  const uint64_t bytes = Expected(sight, known.output_bytes);
  if (bytes > config_.budget_bytes) return false;
  step_bytes_ += bytes;
  if (sight.identity > largest_identity_ || !TimeIsLeft() || reserved_ + bytes > config_.budget_bytes) return false;
  if (known_.size() < kMaxSignatures) known_.try_emplace(sight.signature, known);
  reserved_ += bytes;
  return true;
}

bool CallSampler::TakesFirst(const Sight& sight) {
  const uint64_t bytes = Expected(sight, sight.input_bytes);
  if (sight.input_bytes > config_.budget_bytes) {
    known_[sight.signature] = {.too_large = true};
    return false;
  }
  // Alone in a step, a call may take more than is expected of it.
  if (!TimeIsLeft() || (reserved_ > 0 && reserved_ + bytes > config_.budget_bytes)) {
    left_out_ = true;
    return false;
  }
  known_[sight.signature] = {.output_bytes = sight.input_bytes};
  reserved_ += bytes;
  return true;
}

bool CallSampler::TakesInTurn(const Sight& sight, const Known& known, uint64_t place) {
  if (config_.sample == core::CheckConfig::Sample::kFirst || only_first_ || ran_out_) return false;
  if (place < turn_ || known.too_large) return false;
  const uint64_t bytes = Expected(sight, known.output_bytes);
  if (bytes > config_.budget_bytes) return false;
  if (!TimeIsLeft() || reserved_ + bytes > config_.budget_bytes) {
    ran_out_ = true;
    next_turn_ = place;
    return false;
  }
  reserved_ += bytes;
  return true;
}

void CallSampler::Learn(const Sight& sight, uint64_t output_bytes) {
  absl::MutexLock lock(&mu_);
  const auto found = known_.find(sight.signature);
  if (found != known_.end()) found->second.output_bytes = output_bytes;
}

bool CallSampler::Keeps(uint64_t bytes) {
  uint64_t kept = kept_.load(std::memory_order_relaxed);
  do {
    if (bytes > config_.budget_bytes || kept > config_.budget_bytes - bytes) return false;
  } while (!kept_.compare_exchange_weak(kept, kept + bytes, std::memory_order_relaxed));
  return true;
}

uint64_t CallSampler::Expected(const Sight& sight, uint64_t output_bytes) {
  return (sight.input_bytes + output_bytes) * (sight.has_gradients ? 2 : 1);
}

void CallSampler::EndStep(absl::Duration sending) {
  Spend(sending);
  absl::MutexLock lock(&mu_);
  const int64_t spent = spent_ns_.load(std::memory_order_relaxed);
  const int64_t had = time_ns_.load(std::memory_order_relaxed);
  spent_ns_.fetch_sub(had == kUnlimited ? spent : std::min(spent, had), std::memory_order_relaxed);
  const bool by_identity = config_.sample == core::CheckConfig::Sample::kIdentity;
  if (config_.budget_time == absl::ZeroDuration() && place_ > 0 && !by_identity) {
    time_ns_ = absl::ToInt64Nanoseconds((Now() - began_) * core::CheckConfig::kShareOfStep);
  }
  if (by_identity && place_ > 0) {
    largest_identity_ = std::numeric_limits<uint64_t>::max();
    while (step_bytes_ > config_.budget_bytes) step_bytes_ /= 2, largest_identity_ /= 2;
    step_bytes_ = 0;
  }
  kept_ = 0;
  reserved_ = 0;
  place_ = 0;
  turn_ = std::exchange(ran_out_, false) ? next_turn_ : only_first_ ? turn_ : 0;
  only_first_ = std::exchange(left_out_, false);
}

}  // namespace msprobe::capture
