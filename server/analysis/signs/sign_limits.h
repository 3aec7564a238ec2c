#pragma once

#include <cstdint>
#include <optional>

namespace msprobe::server {

// What is too little of a similarity of signs: mindstudio-probe's rule of thumb, by default.
struct SignLimits {
  double least = 0.97;  // of the first step
  double drop = 0.03;   // from one step to the next
};

// Looks at the similarities of one parameter, step after step. Threads: one at a time.
class SignWatch {
 public:
  // The numbers of v1::SignSimilarity::Verdict.
  enum class Verdict : uint8_t { kSimilar, kLow, kDrop };

  explicit SignWatch(SignLimits limits) : limits_(limits) {}

  Verdict Look(double similarity) {
    before_ = last_;
    last_ = similarity;
    if (!before_.has_value()) return similarity < limits_.least ? Verdict::kLow : Verdict::kSimilar;
    return *before_ - similarity > limits_.drop ? Verdict::kDrop : Verdict::kSimilar;
  }
  // The similarity of the step before the last one.
  std::optional<double> before() const { return before_; }
  const SignLimits& limits() const { return limits_; }

 private:
  const SignLimits limits_;
  std::optional<double> last_, before_;
};

}  // namespace msprobe::server
