#include "agent/capture/steps/step_state.h"

#include <limits>

namespace msprobe::capture {
namespace {

uint32_t NextId() {
  static std::atomic<uint32_t> next{1};
  return next.fetch_add(1);
}

// The forward pass that a thread has begun.
struct ThreadPass {
  uint32_t step = 0;  // by StepState::id
  uint32_t token = 0;
};
thread_local ThreadPass thread_pass;

}  // namespace

StepState::StepState()
    : id_(NextId()), at_fork_([this] {
        forked_ = true;
        watching_ = false;
        number_ = std::numeric_limits<uint32_t>::max();
      }) {}

void StepState::Start(uint32_t step, std::optional<TokenWindow::Range> tokens) {
  if (forked()) return;
  number_.store(step, std::memory_order_relaxed);
  {
    absl::MutexLock lock(&mu_);
    window_.Open(tokens);
    inside_.store(window_.inside(), std::memory_order_relaxed);
  }
  watching_.store(true, std::memory_order_release);
}

void StepState::GoOn(uint32_t step) {
  if (forked()) return;
  number_.store(step, std::memory_order_relaxed);
  watching_.store(true, std::memory_order_release);
}

uint32_t StepState::BeginToken() {
  absl::MutexLock lock(&mu_);
  if (token_seen_) token_.store(latest_token() + 1, std::memory_order_relaxed);
  token_seen_ = true;
  window_.BeginPass();
  inside_.store(window_.inside(), std::memory_order_relaxed);
  thread_pass = {.step = id(), .token = latest_token()};
  return thread_pass.token;
}

uint32_t StepState::token() const { return thread_pass.step == id() ? thread_pass.token : latest_token(); }

StepState::Contents StepState::End(uint32_t step) {
  number_.store(step + 1, std::memory_order_relaxed);
  absl::MutexLock lock(&mu_);
  const Contents contents{.passes = token_seen_, .records = has_records_.exchange(false)};
  token_.store(0, std::memory_order_relaxed);
  token_seen_ = false;
  id_.store(NextId(), std::memory_order_relaxed);
  return contents;
}

}  // namespace msprobe::capture
