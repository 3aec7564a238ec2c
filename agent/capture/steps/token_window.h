#pragma once

#include <cstdint>
#include <optional>

namespace msprobe::capture {

// token_range of PrecisionDebugger.start: which forward passes of the root are captured, counted from 0 at start.
//
// Without a range everything is. With one, capturing begins where pass `first` begins and ends where the pass after
// `last` does, so what follows a pass (its backward, sampling) belongs to it.
//
// Not thread-safe: the recorder guards it.
class TokenWindow {
 public:
  struct Range {
    uint32_t first = 0;
    uint32_t last = 0;
  };

  void Open(std::optional<Range> range) {
    range_ = range;
    next_ = 0;
  }
  // The root was called: another pass begins.
  void BeginPass() { ++next_; }
  bool inside() const { return !range_ || (next_ > range_->first && next_ <= uint64_t{range_->last} + 1); }

 private:
  std::optional<Range> range_;
  uint64_t next_ = 0;  // passes begun
};

}  // namespace msprobe::capture
