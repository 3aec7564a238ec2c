#include "agent/capture/reading/remembered_statistics.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <iterator>
#include <utility>

#include "agent/capture/reading/watched_payload.h"
#include "agent/core/log.h"
#include "agent/core/str_cat.h"
#include "agent/stats/fleeting_memory.h"

namespace msprobe::capture {
namespace {

// Each protection interrupts the cores that the program runs on, which forget where its pages lie.
constexpr ptrdiff_t kProtectAtOnce = ptrdiff_t{16} << 20;

// Of what `view` reaches, first byte to last.
std::span<const std::byte> Reach(const stats::TensorView& view) {
  int64_t low = 0, high = 0;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    const int64_t reach = (view.sizes[i] - 1) * view.strides[i];
    (reach < 0 ? low : high) += reach;
  }
  const auto item = static_cast<int64_t>(stats::ElementSize(view.dtype));
  return {static_cast<const std::byte*>(view.data) + low * item, static_cast<size_t>((high - low + 1) * item)};
}

bool Overlap(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.data() < b.data() + b.size() && b.data() < a.data() + a.size();
}

void CopyNumbers(const core::Leaf& from, core::Leaf* to) {
  const std::span<const int64_t> shape = to->shape;
  std::shared_ptr<core::Payload> payload = std::move(to->payload);
  *to = from;
  to->shape = shape;
  to->payload = std::move(payload);
}

}  // namespace

bool SameNumbers(const core::Leaf& a, const core::Leaf& b) {
  const auto same = [](double x, double y) { return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y); };
  return a.has_statistics == b.has_statistics && same(a.max, b.max) && same(a.min, b.min) && same(a.mean, b.mean) &&
         same(a.norm, b.norm) && same(a.variance, b.variance) && a.integer_max == b.integer_max &&
         a.integer_min == b.integer_min && a.zero_count == b.zero_count && a.nan_count == b.nan_count &&
         a.positive_inf_count == b.positive_inf_count && a.negative_inf_count == b.negative_inf_count &&
         a.crc32 == b.crc32 && a.xor64 == b.xor64;
}

RememberedStatistics::~RememberedStatistics() {
  absl::MutexLock lock(&mu_);
  for (auto& [id, seen] : seen_) Forget(seen);
}

RememberedStatistics::Key RememberedStatistics::KeyOf(const stats::TensorView& view) {
  Key key{.data = view.data, .dtype = view.dtype, .conjugate = view.conjugate, .negative = view.negative, .dims = {}};
  key.dims.assign(view.sizes.begin(), view.sizes.end());
  key.dims.insert(key.dims.end(), view.strides.begin(), view.strides.end());
  return key;
}

RememberedStatistics::Seen& RememberedStatistics::See(const Memory& memory) {
  Seen& seen = seen_[memory.id];
  const bool is_known = !seen.memory.empty() && !IsGone(seen) && seen.memory.data() == memory.bytes.data() &&
                        seen.memory.size() == memory.bytes.size();
  seen.last_step = step_;
  if (is_known) return seen;
  Forget(seen);
  young_.push_back(memory.id);
  seen.owner = memory.owner_of == nullptr ? nullptr : memory.owner_of(memory.id);
  seen.memory = memory.bytes;
  seen.first_step = step_;
  return seen;
}

void RememberedStatistics::Forget(Seen& seen) {
  if (seen.region != nullptr) Disarm(*seen.region);
  seen.region.reset();
}

void RememberedStatistics::ForgetDead() {
  constexpr int kAtOnce = 4;
  for (int i = 0; i < kAtOnce && !young_.empty(); ++i) {
    if (next_young_ >= young_.size()) next_young_ = 0;
    const auto found = seen_.find(young_[next_young_]);
    if (found != seen_.end() && !IsGone(found->second)) {
      ++next_young_;
      continue;
    }
    if (found != seen_.end()) {
      Forget(found->second);
      seen_.erase(found);
    }
    young_[next_young_] = young_.back();
    young_.pop_back();
  }
}

void RememberedStatistics::DisarmWithin(std::span<const std::byte> memory) {
  auto other = armed_.lower_bound(memory.data());
  if (other != armed_.begin()) --other;
  while (other != armed_.end() && other->first < memory.data() + memory.size()) {
    Region* const found = other->second;
    ++other;
    if (Overlap(found->memory, memory)) Disarm(*found);
  }
}

bool RememberedStatistics::Arm(Region& region) {
  DisarmWithin(region.memory);
  region.entries.clear();
  *region.generation = ++generations_;
  if (!region.is_private) region.is_private = watch_->IsPrivate(region.memory);
  region.armed = region.is_private && watch_->Arm(region.memory, &region.range);
  if (region.armed) armed_[region.memory.data()] = &region;
  return region.armed;
}

void RememberedStatistics::Disarm(Region& region) {
  region.entries.clear();
  if (!std::exchange(region.armed, false)) return;
  armed_.erase(region.memory.data());
  watch_->Disarm(region.range);
}

void RememberedStatistics::Rest(Region& region) {
  region.next_arm_step = step_ + region.patience;
  region.patience *= 2;
}

RememberedStatistics::Place RememberedStatistics::Recall(const Memory& memory, const stats::TensorView& view,
                                                         core::Leaf* leaf) {
  if (watch_ == nullptr || memory.id == nullptr || memory.bytes.size() < stats::WriteWatch::kSmallest) return {};
  absl::MutexLock lock(&mu_);
  if (!trusted_) return {};
  ForgetDead();
  if (Overlap(ahead_, memory.bytes)) {
    ahead_is_wanted_.store(false, std::memory_order_relaxed);
    return {};
  }
  if (memory.changes && !seen_.contains(memory.id)) return {};
  Seen& seen = See(memory);
  if (seen.region == nullptr) {
    if (memory.changes || (seen.first_step == step_ && !memory.lasts)) return {};
    seen.region = std::make_unique<Region>(
        Region{.memory = seen.memory, .is_private = memory.is_private, .range = {}, .entries = {}});
  }
  Region& region = *seen.region;
  if (region.armed && watch_->Written(region.range, Reach(view))) {
    Disarm(region);
    Rest(region);
  }
  if (!region.armed && (memory.changes || step_ < region.next_arm_step)) return {};
  if (!region.armed && !Arm(region)) {
    Rest(region);
    return {};
  }
  const Entry* const entry = FindEntry(region, view);
  Place place{.id = memory.id, .generation = *region.generation};
  if (entry == nullptr) return place;
  CopyNumbers(entry->numbers, leaf);
  leaf->reused = true;
  place.known = true;
  place.verify = ++counts_.recalled % kVerifyEvery == 0;
  return place;
}

void RememberedStatistics::Remember(const Place& place, const stats::TensorView& view, const core::Leaf& leaf) {
  if (place.id == nullptr || place.known) return;
  absl::MutexLock lock(&mu_);
  if (Region* const region = Find(place)) AddEntry(*region, view, leaf);
}

void RememberedStatistics::AddEntry(Region& region, const stats::TensorView& view, const core::Leaf& numbers) {
  // One storage of very many views (a cache cut anew at each call) would only cost.
  constexpr size_t kMaxViews = 64;
  if (region.entries.size() >= kMaxViews) region.entries.clear();
  Entry entry{.key = KeyOf(view), .numbers = {}, .name = {}};
  CopyNumbers(numbers, &entry.numbers);
  entry.numbers.shape = {};
  region.entries.push_back(std::move(entry));
}

bool RememberedStatistics::Verify(const Place& place, const stats::TensorView& view, const core::Leaf& recalled,
                                  const core::Leaf& read) {
  if (SameNumbers(recalled, read)) return true;
  absl::MutexLock lock(&mu_);
  const Region* const region = Find(place);
  if (region == nullptr || watch_->Written(region->range, Reach(view))) return true;  // it was written just now
  ++counts_.wrong;
  trusted_ = false;
  for (auto& [id, seen] : seen_) Forget(seen);
  seen_.clear();
  young_.clear();
  return false;
}

RememberedStatistics::Place RememberedStatistics::Read(const Memory& memory, const stats::TensorView& view,
                                                       core::Session& session, core::Leaf& leaf,
                                                       absl::FunctionRef<void(core::Leaf&)> measure) {
  const Place place = Recall(memory, view, &leaf);
  if (place.known && !place.verify) return place;
  core::Leaf read;
  read.is_wide = leaf.is_wide;
  measure(read);
  if (place.known && !Verify(place, view, leaf, read)) {
    constexpr char kWrong[] =
        "remembered statistics differed from those read again, though nothing had written the memory: from now on "
        "every tensor is read at every call, and numbers of this run that are marked as reused may be wrong";
    session.ReportFault(0, "reuse", kWrong);
    core::Log().Warning(core::Cat("msprobe: ", kWrong, "; set \"reuse\" to \"off\" and report it."));
  }
  Remember(place, view, read);
  leaf = std::move(read);
  return place;
}

bool RememberedStatistics::ReadAhead(const Ahead& ahead, const stats::TensorView& view, std::span<std::byte> room,
                                     absl::FunctionRef<bool()> goes_on,
                                     absl::FunctionRef<void(const stats::TensorView&, core::Leaf&)> measure) {
  if (watch_ == nullptr || !BeginAhead(ahead)) return false;
  const std::span<const std::byte> memory = ahead.memory.bytes;
  stats::WriteWatch::Range range;
  core::Leaf numbers;
  if (watch_->Begin(memory, &range)) {
    const std::byte* const end = memory.data() + memory.size();
    const std::byte* watched = memory.data();  // up to here
    const auto watch_piece = [&](std::span<const std::byte> piece) {
      if (!ahead_is_wanted_.load(std::memory_order_relaxed) || !goes_on()) return false;
      if (piece.data() + piece.size() <= watched) return true;
      const std::byte* const begin = watched;
      watched = end - begin <= kProtectAtOnce ? end : begin + kProtectAtOnce;
      return watch_->Protect(range, {begin, watched});
    };
    stats::FleetingMemory fleeting(memory, room, watch_piece);
    stats::TensorView copied = view;
    copied.fleeting = &fleeting;
    measure(copied, numbers);
    const bool is_whole = fleeting.is_whole() && watched == end;
    if (is_whole && EndAhead(ahead, view, range, numbers)) return true;
    watch_->Disarm(range);
  }
  absl::MutexLock lock(&mu_);
  ahead_ = {};
  return false;
}

bool RememberedStatistics::BeginAhead(const Ahead& ahead) {
  absl::MutexLock lock(&mu_);
  if (!trusted_ || ahead.owner->expired() || seen_.contains(ahead.memory.id)) return false;
  DisarmWithin(ahead.memory.bytes);
  ahead_ = ahead.memory.bytes;
  ahead_is_wanted_.store(true, std::memory_order_relaxed);
  return true;
}

bool RememberedStatistics::EndAhead(const Ahead& ahead, const stats::TensorView& view,
                                    const stats::WriteWatch::Range& range, const core::Leaf& numbers) {
  absl::MutexLock lock(&mu_);
  if (!trusted_ || ahead.owner->expired() || !ahead_is_wanted_.load(std::memory_order_relaxed)) return false;
  if (seen_.contains(ahead.memory.id)) return false;  // with other memory by now
  ahead_ = {};
  Seen& seen = seen_[ahead.memory.id];
  young_.push_back(ahead.memory.id);
  seen = {.owner = ahead.owner, .memory = ahead.memory.bytes, .first_step = step_, .last_step = step_, .region = {}};
  seen.region = std::make_unique<Region>(
      Region{.memory = seen.memory, .is_private = true, .armed = true, .range = range, .entries = {}});
  *seen.region->generation = ++generations_;
  armed_[seen.memory.data()] = seen.region.get();
  AddEntry(*seen.region, view, numbers);
  return true;
}

RememberedStatistics::Region* RememberedStatistics::Find(const Place& place) {
  if (place.id == nullptr) return nullptr;
  const auto found = seen_.find(place.id);
  if (found == seen_.end()) return nullptr;
  Region* const region = found->second.region.get();
  return region != nullptr && region->armed && *region->generation == place.generation ? region : nullptr;
}

RememberedStatistics::Entry* RememberedStatistics::FindEntry(Region& region, const stats::TensorView& view) {
  const Key key = KeyOf(view);
  const auto entry =
      std::find_if(region.entries.begin(), region.entries.end(), [&](const Entry& each) { return each.key == key; });
  return entry == region.entries.end() ? nullptr : &*entry;
}

std::shared_ptr<core::Payload> RememberedStatistics::RecallBytes(const Place& place, const stats::TensorView& view) {
  if (!view.is_contiguous() || view.conjugate || view.negative) return nullptr;
  absl::MutexLock lock(&mu_);
  Region* const region = Find(place);
  const Entry* const entry = region == nullptr ? nullptr : FindEntry(*region, view);
  if (entry == nullptr || entry->name == nullptr || !entry->name->announced()) return nullptr;
  const std::shared_ptr<const MemoryOwner>& owner = seen_.at(place.id).owner;
  if (owner == nullptr) return nullptr;
  return core::MakePooled<WatchedPayload>(entry->name, owner, Reach(view), watch_, region->range, region->generation);
}

void RememberedStatistics::NameBytes(const Place& place, const stats::TensorView& view,
                                     const std::shared_ptr<core::PayloadName>& name) {
  absl::MutexLock lock(&mu_);
  Region* const region = Find(place);
  Entry* const entry = region == nullptr ? nullptr : FindEntry(*region, view);
  // Copied after they were looked up: written in between, they are not what is remembered.
  if (entry == nullptr || watch_->Written(region->range, Reach(view))) return;
  entry->name = name;
}

void RememberedStatistics::EndStep() {
  absl::MutexLock lock(&mu_);
  ++step_;
  young_.clear();
  absl::erase_if(seen_, [this](auto& each) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const Seen& seen = each.second;
    if (seen.owner == nullptr ? step_ - seen.last_step <= kForgetAfter : !IsGone(seen)) return false;
    Forget(each.second);
    return true;
  });
}

RememberedStatistics::Counts RememberedStatistics::counts() const {
  absl::MutexLock lock(&mu_);
  return counts_;
}

}  // namespace msprobe::capture
