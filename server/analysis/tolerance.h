#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace msprobe::server {

// |target - golden| <= absolute + relative * |golden|.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

// How far apart numbers of a dtype may be. Without anything said, by the dtype of fewer digits of the two: what
// torch.testing.assert_close allows for it, one step of the mantissa for 8-bit floats, nothing for integers and bools.
class Tolerances {
 public:
  Tolerances() = default;
  // For every floating dtype.
  void Override(std::optional<double> relative, std::optional<double> absolute) {
    relative_ = relative;
    absolute_ = absolute;
  }
  // For one, e.g. "bfloat16"; wins over both.
  void Set(std::string dtype, Tolerance tolerance) { by_dtype_[std::move(dtype)] = tolerance; }

  // Printed names: "torch.float32", "Float32".
  Tolerance Of(std::string_view target_dtype, std::string_view golden_dtype) const;

 private:
  std::optional<double> relative_;
  std::optional<double> absolute_;
  std::map<std::string, Tolerance, std::less<>> by_dtype_;
};

}  // namespace msprobe::server
