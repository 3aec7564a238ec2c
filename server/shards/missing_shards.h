#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "msprobe/v1/query.pb.h"

namespace msprobe::server {

// The servers that could not contribute to an answer. Threads: one.
class MissingShards {
 public:
  static constexpr char kTrailer[] = "msprobe-missing-shards-bin";

  // Replaces an earlier entry with the same shard and run.
  void Add(v1::MissingShard shard) {
    for (v1::MissingShard& known : *message_.mutable_shards()) {
      if (known.shard() != shard.shard() || known.run() != shard.run()) continue;
      known = std::move(shard);
      return;
    }
    *message_.add_shards() = std::move(shard);
  }
  bool empty() const { return message_.shards().empty(); }
  const v1::MissingShards& message() const { return message_; }
  // "s1:50051 (connection refused), s2:50051 (...)", each server once.
  std::string Text() const {
    std::vector<std::string> seen;
    std::string text;
    for (const v1::MissingShard& shard : message_.shards()) {
      if (std::find(seen.begin(), seen.end(), shard.shard()) != seen.end()) continue;
      seen.push_back(shard.shard());
      text += (text.empty() ? "" : ", ") + shard.shard() + " (" + shard.why() + ")";
    }
    return text;
  }

 private:
  v1::MissingShards message_;
};

}  // namespace msprobe::server
