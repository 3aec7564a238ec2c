#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace msprobe::server {

// The steps of a picture, some consecutive ones to a column: at most `columns` columns, of equal numbers of steps but
// for the last.
class StepColumns {
 public:
  // Steps in any order; one that stands twice counts once. columns: 1 or more.
  StepColumns(std::vector<uint32_t> steps, size_t columns) : steps_(std::move(steps)) {
    std::sort(steps_.begin(), steps_.end());
    steps_.erase(std::unique(steps_.begin(), steps_.end()), steps_.end());
    each_ = std::max<size_t>(1, (steps_.size() + columns - 1) / columns);
  }

  const std::vector<uint32_t>& steps() const { return steps_; }
  size_t size() const { return (steps_.size() + each_ - 1) / each_; }
  uint32_t first(size_t column) const { return steps_[column * each_]; }
  uint32_t last(size_t column) const { return steps_[std::min((column + 1) * each_, steps_.size()) - 1]; }

  // Of a step that was given.
  size_t IndexOf(uint32_t step) const {
    return static_cast<size_t>(std::lower_bound(steps_.begin(), steps_.end(), step) - steps_.begin());
  }
  size_t ColumnOf(uint32_t step) const { return IndexOf(step) / each_; }

 private:
  std::vector<uint32_t> steps_;
  size_t each_ = 1;
};

}  // namespace msprobe::server
