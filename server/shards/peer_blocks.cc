#include "server/shards/peer_blocks.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "server/shards/peer.h"

namespace msprobe::server {

void PeerBlocks::Add(shards::StepPart& part) {
  if (part.has_head()) {
    head_.Swap(part.mutable_head());
  } else if (part.has_block()) {
    auto block = std::make_shared<v1::Block>();
    block->Swap(part.mutable_block());
    blocks_.push_back(std::move(block));
  } else if (part.has_definition()) {
    const uint64_t id = part.definition().id();
    definitions_[id].Swap(part.mutable_definition());
  }
}

absl::StatusOr<SharedStructure> PeerBlocks::Structure(uint64_t id) const {
  const auto found = definitions_.find(id);
  if (found == definitions_.end()) return absl::NotFoundError(absl::StrFormat("no definition %016x was sent", id));
  if (!found->second.has_structure()) {
    return absl::DataLossError("the definition of a structure is that of something else");
  }
  return DecodeStructure(found->second.structure());
}

absl::StatusOr<std::vector<v1::Frame>> PeerBlocks::Stack(uint64_t id) const {
  const auto found = definitions_.find(id);
  if (found == definitions_.end()) return absl::NotFoundError(absl::StrFormat("no definition %016x was sent", id));
  v1::Stack stack;
  if (!found->second.has_stack() || !stack.ParseFromString(found->second.stack())) {
    return absl::DataLossError("the definition of a stack does not parse as one");
  }
  return std::vector<v1::Frame>(stack.frames().begin(), stack.frames().end());
}

absl::Status PeerBlocks::ReadPayload(std::string_view hash,
                                     absl::FunctionRef<absl::Status(std::string_view)> visit) const {
  return peer_->ReadPayload(hash, 0, 0, [&](uint64_t, std::string_view chunk) { return visit(chunk); });
}

absl::Status PeerBlocks::ReadPayloadRange(std::string_view hash, uint64_t offset, uint64_t size,
                                          absl::FunctionRef<absl::Status(uint64_t, std::string_view)> visit) const {
  return peer_->ReadPayload(hash, offset, size, visit);
}

}  // namespace msprobe::server
