#include "agent/capture/edges/producers.h"

#include <utility>

namespace msprobe::capture {

using core::EdgeKind;

Producers::Sight Producers::Look(const TensorIdentity& tensor) {
  if (tensor.storage.get() == nullptr) return {};
  absl::MutexLock lock(&mu_);
  return {.producer = Find(tensor), .time = ++time_};
}

Producer Producers::Find(const TensorIdentity& tensor) const {
  const auto found = places_.find(tensor.storage.get());
  if (found == places_.end()) return {.kind = forgot_ ? EdgeKind::kUnknown : EdgeKind::kOutside};
  const Storage& storage = storages_[found->second];
  if (storage.memory != tensor.memory) return {};
  const Output* last = nullptr;  // of those that overlap
  for (uint32_t at = storage.newest; at != kNone; at = outputs_[at].older) {
    const Output& output = outputs_[at];
    if (output.layout == tensor.layout && SameVersion(output, tensor) &&
        (last == nullptr || last->version <= tensor.version)) {
      return {.kind = EdgeKind::kSame, .ordinal = output.ordinal, .leaf = output.leaf};
    }
    const bool overlaps = output.begin < tensor.end && tensor.begin < output.end;
    if (last == nullptr && (overlaps || output.layout == tensor.layout)) last = &output;
  }
  if (last == nullptr) return {.kind = storage.forgot ? EdgeKind::kUnknown : EdgeKind::kOutside};
  Producer producer{.kind = EdgeKind::kUnversioned, .ordinal = last->ordinal, .leaf = last->leaf};
  if (SameVersion(*last, tensor)) {
    producer.kind = EdgeKind::kView;
  } else if (last->has_version && tensor.has_version && last->version < tensor.version) {
    producer.kind = EdgeKind::kChanged;
  }
  return producer;
}

void Producers::Add(const TensorIdentity& tensor, uint64_t time, const Producer& producer, uint64_t begun) {
  if (tensor.storage.get() == nullptr) return;
  absl::MutexLock lock(&mu_);
  if (time <= step_began_) return;
  ForgetDead();
  const bool is_full = free_ == kNone && outputs_.size() >= max_tensors_;
  if ((is_full || storages_.size() >= max_tensors_) && !places_.contains(tensor.storage.get())) {
    forgot_ = true;
    return;
  }
  Storage& storage = StorageOf(tensor);
  for (uint32_t at = storage.newest; at != kNone; at = outputs_[at].older) {
    const Output& known = outputs_[at];
    if (known.layout != tensor.layout) continue;
    const bool is_the_same = known.has_version == tensor.has_version && known.version == tensor.version;
    if (known.time > time || (is_the_same && known.ordinal > begun)) return;
    break;
  }
  uint32_t at = Unlink(storage, tensor.layout);
  if (at == kNone) {
    if (storage.outputs >= kMaxInStorage) ForgetOldest(storage);
    at = Allocate();
  }
  if (at == kNone) {
    ForgetOutputs(storage);
    storage.forgot = true;
    return;
  }
  outputs_[at] = {.layout = tensor.layout,
                  .ordinal = producer.ordinal,
                  .time = time,
                  .begin = tensor.begin,
                  .end = tensor.end,
                  .leaf = producer.leaf,
                  .version = tensor.version,
                  .has_version = tensor.has_version,
                  .older = storage.newest};
  storage.newest = at;
  ++storage.outputs;
}

Producers::Storage& Producers::StorageOf(const TensorIdentity& tensor) {
  const auto [found, is_new] = places_.try_emplace(tensor.storage.get(), static_cast<uint32_t>(storages_.size()));
  if (is_new) storages_.push_back({.reference = tensor.storage, .memory = tensor.memory});
  Storage& storage = storages_[found->second];
  if (storage.memory != tensor.memory) {
    ForgetOutputs(storage);
    storage.memory = tensor.memory;
    storage.forgot = false;
  }
  return storage;
}

uint32_t Producers::Unlink(Storage& storage, uint64_t layout) {
  uint32_t* link = &storage.newest;
  while (*link != kNone && outputs_[*link].layout != layout) link = &outputs_[*link].older;
  const uint32_t at = *link;
  if (at == kNone) return kNone;
  *link = outputs_[at].older;
  --storage.outputs;
  return at;
}

uint32_t Producers::Allocate() {
  if (free_ != kNone) {
    ++known_;
    return std::exchange(free_, outputs_[free_].older);
  }
  if (outputs_.size() >= max_tensors_) return kNone;
  ++known_;
  outputs_.emplace_back();
  return static_cast<uint32_t>(outputs_.size() - 1);
}

void Producers::ForgetOldest(Storage& storage) {
  uint32_t* link = &storage.newest;
  while (outputs_[*link].older != kNone) link = &outputs_[*link].older;
  outputs_[*link].older = std::exchange(free_, *link);
  *link = kNone;
  --storage.outputs;
  --known_;
  storage.forgot = true;
}

void Producers::ForgetOutputs(Storage& storage) {
  while (storage.newest != kNone) {
    const uint32_t at = storage.newest;
    storage.newest = outputs_[at].older;
    outputs_[at].older = std::exchange(free_, at);
    --known_;
  }
  storage.outputs = 0;
}

void Producers::ForgetDead() {
  constexpr int kAtOnce = 4;
  for (int i = 0; i < kAtOnce && !storages_.empty(); ++i) {
    if (next_looked_at_ >= storages_.size()) next_looked_at_ = 0;
    Storage& storage = storages_[next_looked_at_];
    if (!storage.reference.expired()) {
      ++next_looked_at_;
      continue;
    }
    ForgetOutputs(storage);
    places_.erase(storage.reference.get());
    if (next_looked_at_ + 1 < storages_.size()) {
      storage = std::move(storages_.back());
      places_[storage.reference.get()] = static_cast<uint32_t>(next_looked_at_);
    }
    storages_.pop_back();
  }
}

void Producers::EndStep() {
  absl::MutexLock lock(&mu_);
  places_.clear();
  storages_.clear();
  outputs_.clear();
  free_ = kNone;
  known_ = 0;
  forgot_ = false;
  step_began_ = time_;
}

size_t Producers::tensors() const {
  absl::MutexLock lock(&mu_);
  return known_;
}

}  // namespace msprobe::capture
