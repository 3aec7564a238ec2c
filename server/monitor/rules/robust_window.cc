#include "server/monitor/rules/robust_window.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace msprobe::server {
namespace {

constexpr double kNormal = 1.4826;

double MedianOf(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

void RobustWindow::Add(double value) {
  if (!std::isfinite(value)) return;
  values_.push_back(value);
  if (values_.size() > size_) values_.pop_front();
}

double RobustWindow::Median() const { return MedianOf({values_.begin(), values_.end()}); }

double RobustWindow::Deviation(double median) const {
  std::vector<double> distances;
  for (double value : values_) distances.push_back(std::abs(value - median));
  return kNormal * MedianOf(std::move(distances));
}

}  // namespace msprobe::server
