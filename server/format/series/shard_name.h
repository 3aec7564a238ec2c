#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace msprobe::server {

// The name of a series of one rank's shard of a tensor:
//
//   fc.weight.parameter.shard(512/1024@0-3):norm
//
// The rank has 512 of the 1024 elements that ranks 0 to 3 have together. A group is ranks and ranges of them, with
// commas between: "0-3", "0-6+2" (0, 2, 4 and 6), "0,5,9-11". Ranks that have a copy of the whole are a group of
// their own.
// Views into the name that was given.
struct ShardName {
  std::string_view tensor;     // "fc.weight.parameter"
  uint64_t elements = 0;       // of the rank
  uint64_t whole = 0;          // of all; not fewer
  std::string_view group;      // "0-3"
  std::string_view statistic;  // "norm"

  // nullopt: the series is none of a shard.
  static std::optional<ShardName> Of(std::string_view series);
  // Of the group, in order; at least one.
  std::vector<uint32_t> Ranks() const;
};

// The part of a name that only series of shards have.
inline constexpr std::string_view kShardMark = ".shard(";

}  // namespace msprobe::server
