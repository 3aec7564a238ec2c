#include "agent/capture/steps/served_batch.h"

#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"

namespace msprobe::capture {
namespace {

constexpr size_t kMaxCounted = 4096;

uint64_t PositionAt(const Positions& positions, int64_t index) {
  const int64_t place = index * positions.stride;
  const int64_t value = positions.is_wide ? static_cast<const int64_t*>(positions.host)[place]
                                          : static_cast<const int32_t*>(positions.host)[place];
  return value < 0 ? 0 : static_cast<uint64_t>(value);
}

}  // namespace

void ServedBatch::Set(std::vector<Request> requests) {
  absl::MutexLock lock(&mu_);
  CountOn();
  requests_ = std::move(requests);
  total_ = 0;
  for (const Request& request : requests_) total_ += request.second;
  if (next_.size() <= kMaxCounted) return;
  absl::flat_hash_set<std::string> present;
  for (const Request& request : requests_) present.insert(request.first);
  absl::erase_if(next_, [&](const auto& entry) { return !present.contains(entry.first); });
}

void ServedBatch::CountOn() {
  if (microbatches_.empty()) return;
  for (const auto& [id, tokens] : requests_) next_[id] += static_cast<uint64_t>(tokens);
  microbatches_.clear();
}

std::optional<ServedBatch::Rows> ServedBatch::RowsOf(const Positions* positions) {
  if (positions == nullptr || positions->size >= total_) return Rows{0, total_};
  const std::optional<Positions::Place>& place = positions->place;
  if (!place.has_value() || place->capacity < total_ || place->begin >= total_) return std::nullopt;
  const Rows rows{place->begin, std::min(place->begin + positions->size, total_)};
  for (const Rows& other : microbatches_) {
    if (rows.begin < other.end && other.begin < rows.end) return std::nullopt;
  }
  microbatches_.push_back(rows);
  return rows;
}

void ServedBatch::NotePass(core::Session& session, uint32_t step, uint32_t token, const Positions* positions) {
  absl::MutexLock lock(&mu_);
  if (requests_.empty()) return;
  const std::optional<Rows> rows = RowsOf(positions);
  if (!rows.has_value()) return;
  const bool is_whole = rows->begin == 0 && rows->end == total_;
  const bool is_counted = positions == nullptr || positions->host == nullptr;
  int64_t first = 0;  // of the request, in the batch
  for (const auto& [id, tokens] : requests_) {
    const Rows own{std::max(first, rows->begin), std::min(first + tokens, rows->end)};
    if (own.begin < own.end) {
      core::Session::TokenSpan span;
      span.request = id;
      span.first_row = static_cast<uint64_t>(own.begin - rows->begin);
      span.counted = is_counted;
      if (is_counted) {
        const uint64_t next = next_[id];
        span.first_position = next + static_cast<uint64_t>(own.begin - first);
        span.last_position = next + static_cast<uint64_t>(own.end - 1 - first);
      } else {
        span.first_position = PositionAt(*positions, own.begin - rows->begin);
        span.last_position = PositionAt(*positions, own.end - 1 - rows->begin);
      }
      session.NoteTokens(step, token, span);
    }
    if (is_counted && is_whole) next_[id] += static_cast<uint64_t>(tokens);
    first += tokens;
  }
}

}  // namespace msprobe::capture
