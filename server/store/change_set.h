#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "google/protobuf/message.h"
#include "server/format/storage/value.h"

namespace msprobe::server {

// Column families of the store.
enum class Family : uint8_t { kMeta, kRows, kTiles, kPayloads, kExtents };

// The changes of one atomic write, in order. A plain value: nothing happens before Database::Write.
class ChangeSet {
 public:
  enum class Kind : uint8_t { kPut, kDelete, kDeletePrefix, kPutChunk, kDeleteChunks };
  struct Change {
    Kind kind;
    Family family;
    std::string key;
    std::string value;
    std::string_view content;  // kPutChunk
  };

  void Put(Family family, std::string key, std::string value) {
    changes_.push_back({Kind::kPut, family, std::move(key), std::move(value), {}});
  }
  void PutMeta(std::string key, const google::protobuf::Message& value) {
    Put(Family::kMeta, std::move(key), EncodeValue(value));
  }
  void Delete(Family family, std::string key) { changes_.push_back({Kind::kDelete, family, std::move(key), {}, {}}); }
  // Every key that begins with the prefix, as of this point in the set.
  void DeletePrefix(Family family, std::string prefix) {
    changes_.push_back({Kind::kDeletePrefix, family, std::move(prefix), {}, {}});
  }
  // One chunk of a payload, under a ChunkKey. The content is borrowed until the set is written.
  void PutChunk(std::string key, std::string_view content) {
    has_chunks_ = true;
    changes_.push_back({Kind::kPutChunk, Family::kExtents, std::move(key), {}, content});
  }
  // The chunks under a ChunkKey::Prefix that were stored, from the first of them on, before this set.
  void DeleteChunks(std::string prefix) {
    has_chunks_ = true;
    changes_.push_back({Kind::kDeleteChunks, Family::kExtents, std::move(prefix), {}, {}});
  }

  bool empty() const { return changes_.empty(); }
  bool has_chunks() const { return has_chunks_; }
  const std::vector<Change>& changes() const { return changes_; }

 private:
  std::vector<Change> changes_;
  bool has_chunks_ = false;
};

}  // namespace msprobe::server
