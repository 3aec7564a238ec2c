#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "server/shards/series_view.h"

namespace msprobe::server {

// Makes of the series of shards those of their tensors.
//
// Threads: one at a time.
class WholeSeries {
 public:
  // A session that was opened then has points of the series.
  void Note(std::string_view series, int64_t opened_unix_us);
  // Adds the wholes that the pattern (empty: all) takes, each as a series of the first rank of its group, with the
  // steps of which all shards are there. Shards are left in where the pattern names them (kShardMark), and those that
  // it takes where they give no whole, or one that lacks a step that some of them have. Of two groups that had the
  // tensor one after the other, with the same first rank, the later one counts.
  void Join(const std::string& name_glob, SeriesByName& series) const;

 private:
  struct Group {
    std::string tensor, ranks;
    uint64_t elements = 0;
    auto operator<=>(const Group&) const = default;  // NOLINT(modernize-use-nullptr): it has no pointer
  };
  std::map<Group, int64_t> groups_;  // when the last of its sessions was opened
};

// Of the names that are stored, those that are shown: a whole's in place of its shards'.
std::set<std::string> ShownNames(const std::set<std::string>& stored);

}  // namespace msprobe::server
