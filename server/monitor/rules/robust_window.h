#pragma once

#include <cstddef>
#include <deque>

namespace msprobe::server {

// The latest finite values of a series, with statistics that a few wild ones do not move. Threads: one at a time.
class RobustWindow {
 public:
  explicit RobustWindow(size_t size) : size_(size) {}

  // A value that is not finite is left out.
  void Add(double value);
  size_t count() const { return values_.size(); }
  // Of at least one value.
  double Median() const;
  // 1.4826 times the median distance to the median: the standard deviation, if the values are normal.
  double Deviation(double median) const;

 private:
  const size_t size_;
  std::deque<double> values_;
};

}  // namespace msprobe::server
