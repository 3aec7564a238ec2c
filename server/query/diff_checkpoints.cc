#include <string>
#include <utility>
#include <vector>

#include "server/analysis/checkpoint/checkpoint_pairs.h"
#include "server/analysis/checkpoint/tensor_difference.h"
#include "server/analysis/compare/in_order.h"
#include "server/format/cat.h"
#include "server/query/accuracy_message.h"
#include "server/query/checkpoints_service.h"

namespace msprobe::server {
namespace {

using DifferenceMessage = v1::CheckpointDifference;

void FillSide(const std::string& name, const LogicalTensor& tensor, uint64_t hash, DifferenceMessage::Side& out) {
  out.set_name(name);
  out.set_dtype(tensor.dtype);
  out.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  out.set_pieces(static_cast<uint32_t>(tensor.pieces.size()));
  out.set_hash(hash);
}

void Fill(const TensorDifference& found, const Policy& policy, DifferenceMessage& out) {
  out.set_kind(static_cast<DifferenceMessage::Kind>(found.kind));
  out.set_different(found.different);
  out.set_l2(found.l2);
  out.set_cosine(found.cosine);
  out.set_max_abs(found.max_abs);
  out.set_max_rel(found.max_rel);
  if (found.verdict) Fill(*found.verdict, policy, *out.mutable_verdict());
}

absl::StatusOr<DifferenceMessage> DiffPair(const CheckpointPair& pair, const Checkpoint& target,
                                           const Checkpoint& golden, const Policy& policy,
                                           const std::function<bool()>& cancelled) {
  const auto found_target = target.tensors.find(pair.target), found_golden = golden.tensors.find(pair.golden);
  const LogicalTensor* const ours = found_target == target.tensors.end() ? nullptr : &found_target->second;
  const LogicalTensor* const theirs = found_golden == golden.tensors.end() ? nullptr : &found_golden->second;
  DifferenceMessage message;
  message.set_note(pair.note);
  message.set_elements((ours != nullptr ? ours : theirs)->elements());
  TensorDifference found;
  if (ours != nullptr && theirs != nullptr) {
    auto differed = Differ(*ours, *theirs, policy, cancelled);
    if (!differed.ok()) return differed.status();
    found = *differed;
    Fill(found, policy, message);
  } else {
    message.set_kind(theirs == nullptr ? DifferenceMessage::ONLY_TARGET : DifferenceMessage::ONLY_GOLDEN);
  }
  if (ours != nullptr) FillSide(pair.target, *ours, found.target_hash, *message.mutable_target());
  if (theirs != nullptr) FillSide(pair.golden, *theirs, found.golden_hash, *message.mutable_golden());
  return message;
}

}  // namespace

absl::Status DiffCheckpoints(const AnalysisContext& context, const v1::DiffCheckpointsRequest& request,
                             const std::function<bool()>& cancelled, const Send<v1::DiffCheckpointsResponse>& send) {
  if (!context.paths_allowed) {
    return absl::FailedPreconditionError(
        Cat("path ", request.target(), ": this server reads no directories; let the client start a server of its own"));
  }
  auto policy = AskedPolicy(request.policy());
  if (!policy.ok()) return policy.status();
  const CheckpointOptions options{.optimizer = request.optimizer()};
  auto target = OpenCheckpoint(request.target(), options);
  if (!target.ok()) return target.status();
  auto golden = OpenCheckpoint(request.golden(), options);
  if (!golden.ok()) return golden.status();
  v1::DiffCheckpointsResponse response;
  for (const auto& [path, side] : {std::pair(&request.target(), &*target), std::pair(&request.golden(), &*golden)}) {
    response.mutable_opened()->set_path(*path);
    response.mutable_opened()->set_layout(side->layout);
    response.mutable_opened()->set_tensors(side->tensors.size());
    if (!send(response)) return PeerGone();
  }
  Renames renames;
  for (const auto& rename : request.renames()) renames.emplace_back(rename.from(), rename.to());
  std::vector<CheckpointPair> pairs = PairCheckpoints(*target, *golden, renames);
  std::erase_if(pairs, [&](const CheckpointPair& pair) { return !IsNamed(pair, request.name_glob()); });
  if (pairs.empty() && !request.name_glob().empty()) {
    return absl::NotFoundError(Cat("no tensor of either side is called ", request.name_glob()));
  }
  for (const auto& [name, side] : {std::pair("target", &*target), std::pair("golden", &*golden)}) {
    for (const std::string& note : side->notes) {
      response.set_note(Cat(name, ": ", note));
      if (!send(response)) return PeerGone();
    }
  }

  const auto diff = [&](size_t index) { return DiffPair(pairs[index], *target, *golden, **policy, cancelled); };
  const auto take = [&](size_t index, DifferenceMessage message) -> absl::StatusOr<bool> {
    *response.mutable_difference() = std::move(message);
    if (!send(response)) return PeerGone();
    response.mutable_progress()->set_tensors_done(index + 1);
    response.mutable_progress()->set_tensors_total(pairs.size());
    if (!send(response)) return PeerGone();
    return true;
  };
  return InOrder<DifferenceMessage>::Run(pairs.size(), context.threads, diff, take);
}

}  // namespace msprobe::server
