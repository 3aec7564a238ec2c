#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace msprobe::server {

// |target - golden| <= absolute + relative * |golden|.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

// How far apart numbers may be, by dtype. Of two dtypes the one with fewer digits counts. The defaults are those of
// torch.testing.assert_close, one step of the mantissa for 8-bit floats, and 0 for integers and bools.
class Tolerances {
 public:
  Tolerances() = default;
  // For every floating dtype.
  void Override(std::optional<double> relative, std::optional<double> absolute) {
    relative_ = relative;
    absolute_ = absolute;
  }
  // For one dtype, e.g. "bfloat16"; wins over Override.
  void Set(std::string dtype, Tolerance tolerance) { by_dtype_[std::move(dtype)] = tolerance; }

  // For rows whose full name matches a shell pattern, of one dtype (empty: of every dtype). An absent tolerance stays
  // as it is without the rule. A rule wins over all of the above, and over rules that were added before it.
  void AddRule(std::string name_glob, std::string dtype, std::optional<double> relative,
               std::optional<double> absolute) {
    rules_.push_back({std::move(name_glob), std::move(dtype), relative, absolute});
  }
  bool by_name() const { return !rules_.empty(); }

  // Printed names: "torch.float32", "Float32". `row_name` is the target's.
  Tolerance Of(std::string_view target_dtype, std::string_view golden_dtype, std::string_view row_name = {}) const;

 private:
  struct Rule {
    std::string name_glob;
    std::string dtype;
    std::optional<double> relative;
    std::optional<double> absolute;
  };

  Tolerance OfDType(std::string_view name) const;

  std::optional<double> relative_;
  std::optional<double> absolute_;
  std::map<std::string, Tolerance, std::less<>> by_dtype_;
  std::vector<Rule> rules_;
};

}  // namespace msprobe::server
