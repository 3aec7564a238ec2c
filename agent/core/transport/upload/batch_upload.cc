#include "agent/core/transport/upload/batch_upload.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

// Of its first records.
std::optional<uint32_t> StepOf(const v1::Batch& batch) {
  for (const v1::Item& item : batch.items()) {
    if (item.has_block()) return item.block().step();
    if (item.has_scalars()) return item.scalars().step();
  }
  return std::nullopt;
}

}  // namespace

BatchUpload::BatchUpload(const SenderParts* parts, std::string session, HeldBatches* held, Packer* packer)
    : parts_(*parts), session_(std::move(session)), held_(held), packer_(packer) {}

void BatchUpload::Begin() { next_ = held_->freed_through() + 1; }

void BatchUpload::Acknowledged() {
  // What a former stream carried may have come after this one's Welcome.
  next_ = std::max(next_, held_->freed_through() + 1);
  if (held_->freed_through() + 1 >= next_) one_at_a_time_ = false;
}

void BatchUpload::Refused() {
  const uint64_t head = held_->freed_through() + 1;
  if (one_at_a_time_ && next_ == head + 1 && !held_->empty()) ReplaceByGap(head);
  one_at_a_time_ = true;
}

bool BatchUpload::ReportServerLoss() {
  for (uint64_t sequence = held_->freed_through() + 1; sequence <= held_->last_sequence(); ++sequence) {
    const absl::StatusOr<HeldBatches::Bytes> bytes = held_->Read(sequence);
    v1::AgentMessage message;
    if (!bytes.ok() || !message.ParseFromArray(bytes->view.data(), static_cast<int>(bytes->view.size()))) {
      ReplaceByGap(sequence);
      return true;
    }
    const std::optional<uint32_t> first_step = held_->SummaryOf(sequence).first_step;
    const std::optional<uint32_t> step = first_step.has_value() ? first_step : StepOf(message.batch());
    if (!step.has_value()) continue;
    v1::Batch whole;
    packer_->CopyDefinitions(&whole);
    v1::Marker::Gap* const gap = whole.add_items()->mutable_marker()->mutable_gap();
    gap->set_step(*step);
    gap->set_reason(v1::Marker::Gap::SERVER_LOST);
    message.mutable_batch()->clear_definitions();
    whole.MergeFrom(message.batch());
    *message.mutable_batch() = std::move(whole);
    held_->Replace(sequence, message.SerializeAsString());
    return true;
  }
  return false;
}

void BatchUpload::ReplaceByGap(uint64_t sequence) {
  const HeldBatches::Summary summary = held_->SummaryOf(sequence);
  parts_.counters->fragments_dropped += summary.fragments;
  ++parts_.counters->faults;
  parts_.log->Warning(Cat("msprobe: batch ", sequence, " with ", summary.fragments, " records is lost."));
  v1::AgentMessage message;
  v1::Batch* const batch = message.mutable_batch();
  batch->set_session(session_);
  batch->set_batch_sequence(sequence);
  packer_->CopyDefinitions(batch);
  v1::Marker::Gap* const gap = batch->add_items()->mutable_marker()->mutable_gap();
  gap->set_step(summary.first_step.value_or(0));
  gap->set_fragments(summary.fragments);
  gap->set_reason(v1::Marker::Gap::FAULT);
  held_->Replace(sequence, message.SerializeAsString());
}

bool BatchUpload::SendNext(KnownColumns known, WriteContent write) {
  if (next_ > held_->last_sequence()) return false;
  if (one_at_a_time_ && next_ > held_->freed_through() + 1) return false;
  absl::StatusOr<HeldBatches::Bytes> bytes = held_->Read(next_);
  if (!bytes.ok()) {
    ReplaceByGap(next_);
    bytes = held_->Read(next_);
  }
  if (!known.all()) {
    const auto plain = std::make_shared<const std::string>(Plainer(bytes->view, known));
    *bytes = {.owner = plain, .view = *plain};
  }
  const size_t size = bytes->view.size();
  if (!write(BorrowedMessage(bytes->view, std::move(bytes->owner)), size)) return false;
  ++next_;
  ++parts_.counters->batches_sent;
  return true;
}

}  // namespace msprobe::core
