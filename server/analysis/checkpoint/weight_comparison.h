#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/analysis/checkpoint/weight_digest.h"

namespace msprobe::server {

// What is known of a tensor: digests in its own dtype, and in those that it was cast to.
struct DigestedWeight {
  v1::DType dtype = v1::DTYPE_UNSPECIFIED;
  std::vector<int64_t> shape;
  std::map<v1::DType, BlockDigests> digests;
  // Of shards: elements that no rank has told. The rows that they lie in cannot be equal.
  uint64_t missing = 0;

  const BlockDigests& own() const { return digests.at(dtype); }
};

// The weights of one moment, by name.
using DigestedWeights = std::map<std::string, DigestedWeight>;

struct WeightVersion {
  uint32_t step = 0;
  const DigestedWeights* weights = nullptr;
};

// How a tensor of the target differs from the golden one.
struct WeightDifference {
  enum class Kind { kEqual, kCast, kDiffers, kPartial, kStale, kSwapped, kShape, kDType };
  using Rows = std::pair<uint64_t, uint64_t>;  // from, and behind the last

  Kind kind = Kind::kEqual;
  v1::DType compared_as = v1::DTYPE_UNSPECIFIED;
  std::vector<Rows> rows = {};        // of kPartial, to the size of a block
  std::string other = {};             // a golden tensor that it is equal to: of kSwapped
  std::optional<uint32_t> step = {};  // of kStale; of kPartial where those rows are of that version
  std::string note = {};
};

// Judges tensors of a target against a golden side, both digested before. Borrows everything.
// Constant after construction; threads: any.
class WeightComparison {
 public:
  // earlier: versions of the golden side, the latest first.
  WeightComparison(const DigestedWeights& golden, std::vector<WeightVersion> earlier);

  // `name` is the golden tensor's.
  WeightDifference Judge(const DigestedWeight& target, const std::string& name) const;
  // A golden tensor that is equal to the target's; empty: there is none, or all of it is zero.
  std::string NameOf(const DigestedWeight& target, v1::DType dtype) const;

 private:
  std::optional<uint32_t> StepOf(const DigestedWeight& target, v1::DType dtype, const std::string& name,
                                 const std::vector<size_t>& blocks) const;

  const DigestedWeights& golden_;
  const std::vector<WeightVersion> earlier_;
  // Names by dtype and whole digest.
  std::map<std::pair<v1::DType, uint64_t>, std::vector<std::string>> by_digest_;
};

}  // namespace msprobe::server
