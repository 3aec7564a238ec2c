#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "msprobe/v1/record.pb.h"
#include "server/format/storage/block_columns.h"

namespace msprobe::server {

using NonFiniteByLeaf = absl::flat_hash_map<uint32_t, const v1::NonFinite*>;

// What the columns of a block say of one tensor.
struct LeafNumbers {
  bool has_statistics = false;
  double max = 0, min = 0, mean = 0, norm = 0, variance = 0;
  uint64_t zeros = 0, nans = 0, infinities = 0;
  double elements = 0;

  // The statistic with this name of msprobe.v1.Statistic, in lower case. Nothing: the tensor has none, or the name is
  // of another version.
  std::optional<double> Named(std::string_view statistic) const;
};

// `at`: where the leaf's values begin in a block that CheckBlock has checked.
LeafNumbers NumbersOf(const v1::Block& block, const NonFiniteByLeaf& non_finite, const FragmentColumns& at);

// The value of a tensor of one element; nullopt: it has no numbers.
std::optional<double> LeafScalar(const v1::Block& block, const NonFiniteByLeaf& non_finite, const FragmentColumns& at);

}  // namespace msprobe::server
