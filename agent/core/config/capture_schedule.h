#pragma once

#include <cstdint>

namespace msprobe::core {

// Which steps are captured, in turns, as torch.profiler.schedule has it: behind the first `skip_first` steps, each turn
// leaves out `wait` and `warmup` steps and captures `active` ones.
struct CaptureSchedule {
  uint64_t wait = 0;
  uint64_t warmup = 0;  // as wait: capturing needs none
  uint64_t active = 1;  // at least 1
  uint64_t repeat = 0;  // turns; 0: no end
  uint64_t skip_first = 0;

  uint64_t turn() const { return wait + warmup + active; }
  // step: from 0, where the program began.
  bool IsOver(uint64_t step) const {
    return repeat > 0 && step >= skip_first && (step - skip_first) / turn() >= repeat;
  }
  bool Takes(uint64_t step) const {
    return step >= skip_first && !IsOver(step) && (step - skip_first) % turn() >= wait + warmup;
  }
  bool operator==(const CaptureSchedule&) const = default;
};

}  // namespace msprobe::core
