#include "agent/capture/thread_state.h"

#include <atomic>

namespace msprobe::capture {

ThreadState& ThreadState::Get() {
  static std::atomic<uint32_t> next_number{0};
  thread_local ThreadState state(next_number.fetch_add(1));
  return state;
}

}  // namespace msprobe::capture
