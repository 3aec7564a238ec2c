#include "agent/core/transport/control.h"

#include <algorithm>
#include <utility>

namespace msprobe::core {

void ControlMailbox::Put(ControlCommand command) {
  MutexLock lock(&mu_);
  report_.received = std::max(report_.received, command.id);
  ++report_.version;
  if (command.action == ControlCommand::Action::kStatus) return;
  commands_.push_back(std::move(command));
  waiting_.store(true, std::memory_order_release);
}

std::vector<ControlCommand> ControlMailbox::Take() {
  MutexLock lock(&mu_);
  waiting_.store(false, std::memory_order_relaxed);
  return std::exchange(commands_, {});
}

void ControlMailbox::Answer(uint64_t command, std::string said, bool refused) {
  MutexLock lock(&mu_);
  answer_ = ControlAnswer{.command = command, .said = std::move(said), .refused = refused, .step = 0};
}

void ControlMailbox::SetState(ControlState state) {
  bool answered = false;
  {
    MutexLock lock(&mu_);
    report_.state = std::move(state);
    ++report_.version;
    answered = answer_.has_value();
    if (answered) {
      report_.answer = *std::exchange(answer_, std::nullopt);
      report_.answer.step = report_.state.step;
    }
  }
  if (answered) ring_();
}

ControlMailbox::Report ControlMailbox::report() const {
  MutexLock lock(&mu_);
  return report_;
}

}  // namespace msprobe::core
