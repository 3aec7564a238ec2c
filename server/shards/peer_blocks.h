#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/shards/shards.pb.h"
#include "server/store/block_source.h"

namespace msprobe::server {

class Peer;

// A step of another server. All of it is in memory, except payloads, which are read from that server when needed.
// Threads: one for Add; any after the last Add.
class PeerBlocks final : public BlockSource {
 public:
  explicit PeerBlocks(Peer* peer) : peer_(peer) {}

  void Add(shards::StepPart& part);

  const storage::StepRow& row() const override { return head_.row(); }
  const v1::Hello& hello() const override { return head_.hello(); }
  absl::StatusOr<std::vector<std::shared_ptr<const v1::Block>>> Blocks() const override { return blocks_; }
  absl::StatusOr<SharedStructure> Structure(uint64_t id) const override;
  absl::StatusOr<std::vector<v1::Frame>> Stack(uint64_t id) const override;
  absl::Status ReadPayload(std::string_view hash,
                           absl::FunctionRef<absl::Status(std::string_view chunk)> visit) const override;
  absl::Status ReadPayloadRange(std::string_view hash, uint64_t offset, uint64_t size,
                                absl::FunctionRef<absl::Status(uint64_t, std::string_view)> visit) const override;
  absl::StatusOr<std::vector<v1::Marker::Fault>> Faults() const override {
    return std::vector<v1::Marker::Fault>(head_.faults().begin(), head_.faults().end());
  }

 private:
  Peer* const peer_;
  shards::StepHead head_;
  std::vector<std::shared_ptr<const v1::Block>> blocks_;
  absl::flat_hash_map<uint64_t, v1::Definition> definitions_;
};

}  // namespace msprobe::server
