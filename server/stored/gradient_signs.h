#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"
#include "server/store/record_source.h"

namespace msprobe::server {

// The task whose records these are.
inline constexpr std::string_view kGradProbe = "grad_probe";

// A record of task grad_probe: one gradient of one step (agent/capture/gradient_probe.h).
struct GradientRecord {
  std::string parameter;
  v1::TensorLeaf gradient;
  std::optional<v1::TensorLeaf> signs;      // one bit an element
  std::optional<v1::TensorLeaf> intervals;  // int64: elements in each interval, then zeros

  uint64_t elements() const;
  uint64_t sign_bytes() const { return (elements() + 7) / 8; }
};

// Those of a step, in its order. Other records are passed over.
absl::StatusOr<std::vector<GradientRecord>> GradientsIn(RecordSource& step);

// The whole of a payload of the step. NotFound: it never arrived, or is not `size` bytes long.
absl::StatusOr<std::string> ReadWhole(RecordSource& step, const v1::TensorLeaf& leaf, uint64_t size);

// How alike the signs of one gradient are on two sides.
struct SignSimilarity {
  std::string parameter;
  uint64_t elements = 0;
  uint64_t equal = 0;

  // Of no elements 0, as mindstudio-probe has it.
  double share() const { return elements == 0 ? 0 : static_cast<double>(equal) / static_cast<double>(elements); }
};

struct SignComparison {
  std::vector<SignSimilarity> parameters;  // those of both sides, in the target's order
  // Of parameters that cannot be compared: which, and why.
  std::vector<std::string> notes;
};

// Compares the signs of two steps, of parameters that `wanted` takes (null: all). Payloads with equal hashes are not
// read. Errors are the sources'.
absl::StatusOr<SignComparison> CompareSigns(RecordSource& target, RecordSource& golden,
                                            const std::function<bool(const std::string& parameter)>& wanted = nullptr);

// All of them together, each by its elements, as the parameter kSignSummary.
inline constexpr std::string_view kSignSummary = "summary";
SignSimilarity SummaryOf(const std::vector<SignSimilarity>& parameters);

}  // namespace msprobe::server
