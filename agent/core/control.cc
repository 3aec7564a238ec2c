#include "agent/core/control.h"

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
  {
    MutexLock lock(&mu_);
    report_.answered = std::max(report_.answered, command);
    report_.said = std::move(said);
    report_.refused = refused;
    ++report_.version;
  }
  ring_();
}

void ControlMailbox::SetState(ControlState state) {
  MutexLock lock(&mu_);
  report_.state = std::move(state);
  ++report_.version;
}

ControlMailbox::Report ControlMailbox::report() const {
  MutexLock lock(&mu_);
  return report_;
}

}  // namespace msprobe::core
