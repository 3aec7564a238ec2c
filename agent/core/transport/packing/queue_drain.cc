#include "agent/core/transport/packing/queue_drain.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace msprobe::core {

QueueDrain::QueueDrain(const SenderParts* parts, Packer* packer, Outbox* outbox, absl::Duration reading_bound,
                       std::function<void(const v1::Marker&)> on_marker, std::function<void()> on_batch)
    : parts_(*parts),
      packer_(packer),
      outbox_(outbox),
      reading_bound_(absl::ToChronoNanoseconds(std::clamp(reading_bound, absl::ZeroDuration(), absl::Hours(24)))),
      on_marker_(std::move(on_marker)),
      on_batch_(std::move(on_batch)) {}

QueueDrain::Clock::time_point QueueDrain::Drain(Clock::time_point now, Clock::duration linger) {
  Clock::time_point wake = now + std::chrono::hours(1);
  const FragmentQueue::Fill fill = parts_.queue->fill();
  if (!fill.empty && !fill.urgent && now < fill.oldest + linger) {
    wake = fill.oldest + linger;
  } else if (!fill.empty) {
    for (Chunk& chunk : parts_.queue->Take()) taken_.push_back(std::move(chunk));
  }
  wake = std::min(wake, PackTaken(now));
  if (!packer_->empty()) Cut();
  GiveBackChunks();
  return wake;
}

QueueDrain::Clock::time_point QueueDrain::PackTaken(Clock::time_point now) {
  while (!taken_.empty()) {
    if (!PackFront(now)) return std::min(*waiting_since_ + reading_bound_, readings_end_.load());
    packed_.push_back(std::move(taken_.front()));
    taken_.pop_front();
  }
  return Clock::time_point::max();
}

bool QueueDrain::PackFront(Clock::time_point now) {
  if (!reader_.has_value()) {
    reader_.emplace(&taken_.front());
    if (taken_.front().before > packed_entries_) PackGapBefore(taken_.front());
  }
  while (waiting_since_.has_value() || reader_->Next()) {
    if (!reader_->is_marker() && !CompleteReadings(now)) return false;
    ++packed_entries_;
    if (reader_->is_marker()) {
      PackMarker(reader_->marker());
    } else {
      const Dictionary::StructureEntry* const structure = parts_.dictionary->structure(reader_->fragment().structure);
      for (const Leaf& leaf : reader_->leaves()) {
        if (leaf.payload != nullptr) unlisted_.push_back(leaf.payload);
      }
      // Scalars open no step: theirs may have ended.
      if (structure == nullptr || !structure->is_scalars) {
        const uint32_t step = reader_->fragment().step;
        if (open_step_ != step && HasEnded(step)) continue;
        open_step_ = step;
      }
      if (!packer_->Add(reader_->fragment(), reader_->leaves())) {
        ++parts_.counters->faults;
        ++parts_.counters->fragments_dropped;
      }
    }
    if (packer_->full()) Cut();
  }
  reader_.reset();
  return true;
}

void QueueDrain::PackGapBefore(const Chunk& chunk) {
  // A chunk that had no room in the session's memory died with its process.
  v1::Marker marker;
  marker.mutable_gap()->set_step(open_step_.value_or(0));
  marker.mutable_gap()->set_fragments(chunk.before - packed_entries_);
  marker.mutable_gap()->set_reason(v1::Marker::Gap::FAULT);
  packer_->AddMarker(marker, open_step_);
  packed_entries_ = chunk.before;
}

void QueueDrain::PackMarker(std::string_view serialized) {
  v1::Marker marker;
  static_cast<void>(marker.ParseFromArray(serialized.data(), static_cast<int>(serialized.size())));
  packer_->AddMarker(marker, open_step_);
  on_marker_(marker);
  if (marker.has_step_end()) ended_[next_ended_++ % kEndedSteps] = marker.step_end().step();
  if (marker.has_step_end() || marker.has_step_discarded()) open_step_.reset();
}

bool QueueDrain::HasEnded(uint32_t step) const {
  const auto end = ended_.begin() + static_cast<std::ptrdiff_t>(std::min(next_ended_, kEndedSteps));
  return std::find(ended_.begin(), end, step) != end;
}

bool QueueDrain::CompleteReadings(Clock::time_point now) {
  bool lost = false;
  for (Leaf& leaf : reader_->leaves()) {
    if (leaf.pending == nullptr) continue;
    const PendingReading::State state = leaf.pending->state();
    if (state == PendingReading::State::kUnderWay) {
      const bool began = !waiting_since_.has_value();
      if (began) waiting_since_ = now;
      if (!gave_up_ && now < *waiting_since_ + reading_bound_ && now < readings_end_.load()) {
        if (began) leaf.pending->RingWhenDone(parts_.bell);
        return false;
      }
      if (!std::exchange(gave_up_, true)) {
        parts_.log->Warning("msprobe: a device does not give numbers back in time; records go without them.");
      }
    } else if (state == PendingReading::State::kCame) {
      gave_up_ = false;
      waiting_since_.reset();
      leaf.pending->Complete(leaf);
      leaf.pending.reset();
    }
  }
  // Lost are those that are left, now that the record is packed: while it waits for a reading it keeps everything.
  for (Leaf& leaf : reader_->leaves()) {
    if (leaf.pending == nullptr) continue;
    lost = true;
    if (leaf.payload != nullptr) {
      ++parts_.counters->payloads_dropped;
      unlisted_.push_back(std::exchange(leaf.payload, nullptr));
    }
    leaf.pending.reset();
  }
  waiting_since_.reset();
  if (lost) {
    ++parts_.counters->faults;
    reader_->AddFlags(kFault);
  }
  return true;
}

void QueueDrain::Cut() {
  outbox_->Append(packer_->Cut(packed_entries_));
  GiveBackChunks();
  on_batch_();
}

void QueueDrain::GiveBackChunks() {
  for (Chunk& chunk : packed_) {
    parts_.budget->Release(chunk.charged);
    parts_.queue->Recycle(std::move(chunk));
  }
  packed_.clear();
  unlisted_.clear();
}

}  // namespace msprobe::core
