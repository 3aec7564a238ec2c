#include "server/query/step_communication.h"

#include <utility>

#include "server/analysis/divergence/first_divergence.h"
#include "server/format/dump/frame_text.h"

namespace msprobe::server {

v1::Rank NumberedRank(uint32_t number) {
  v1::Rank rank;
  rank.set_kind(v1::Rank::RANK);
  rank.set_number(number);
  return rank;
}

absl::StatusOr<StepCommunication> StepCommunication::Read(const OpenedSource& source,
                                                          const std::vector<StepTables::Place>& places,
                                                          const std::function<bool()>& cancelled) {
  StepCommunication read;
  for (const StepTables::Place& place : places) {
    if (cancelled()) return PeerGone();
    auto records = source.Records(place);
    if (!records.ok()) return records.status();
    read.step_ = place.first;
    RankCalls& of = read.ranks_.emplace_back();
    of.rank = place.second.second;
    of.ended = (*records)->state() == v1::StepSummary::COMPLETE;
    absl::Status status =
        (*records)->ForEachRecordNamed([](const std::string& name, uint32_t) { return IsCommunication(name); },
                                       [&of](const v1::Record& record, uint64_t stack) {
                                         for (CommunicationCall& call : CallsOf(record, stack))
                                           of.calls.push_back(std::move(call));
                                         return absl::OkStatus();
                                       });
    if (!status.ok()) return status;
    read.records_[of.rank] = *std::move(records);
  }
  return read;
}

uint64_t StepCommunication::calls() const {
  uint64_t calls = 0;
  for (const RankCalls& of : ranks_) calls += of.calls.size();
  return calls;
}

std::vector<std::string> StepCommunication::StackOf(uint32_t rank, uint64_t id) const {
  std::vector<std::string> lines;
  const auto found = records_.find(rank);
  if (id == 0 || found == records_.end()) return lines;
  auto frames = found->second->Stack(id);
  if (!frames.ok()) return lines;
  for (const v1::Frame& frame : *frames) lines.push_back(FrameText(frame));
  return lines;
}

v1::Communication StepCommunication::Message(const CommunicationCall& call) const {
  v1::Communication message;
  message.set_op(call.op);
  message.set_operation(call.operation);
  message.set_step(call.step);
  *message.mutable_rank() = NumberedRank(call.rank);
  message.set_group(call.group);
  message.mutable_members()->Add(call.members.begin(), call.members.end());
  message.set_sequence(call.sequence);
  if (call.kind != CommunicationCall::Kind::kCollective) message.set_peer(static_cast<int32_t>(call.peer));
  message.set_bytes(call.bytes);
  message.set_dtype(call.dtype);
  message.set_shape(call.shape);
  message.set_reduce_op(call.reduce_op);
  if (call.root != CommunicationCall::kNoRoot) message.set_root(static_cast<uint32_t>(call.root));
  message.set_is_async(call.is_async);
  message.set_began_unix_us(call.began_unix_us);
  message.set_ended(call.ended);
  for (std::string& line : StackOf(call.rank, call.stack)) message.add_stack(std::move(line));
  return message;
}

v1::CollectiveMismatch StepCommunication::Message(const CollectiveMismatch& mismatch) const {
  v1::CollectiveMismatch message;
  message.set_kind(static_cast<v1::CollectiveMismatch::Kind>(mismatch.kind));
  message.set_step(step_);
  message.set_group(mismatch.group);
  for (uint32_t rank : mismatch.odd) *message.add_odd() = NumberedRank(rank);
  for (uint32_t rank : mismatch.others) *message.add_others() = NumberedRank(rank);
  for (const std::string& field : mismatch.differing) message.add_differing(field);
  if (mismatch.of_odd != nullptr) *message.mutable_of_odd() = Message(*mismatch.of_odd);
  if (mismatch.of_others != nullptr) *message.mutable_of_others() = Message(*mismatch.of_others);
  return message;
}

}  // namespace msprobe::server
