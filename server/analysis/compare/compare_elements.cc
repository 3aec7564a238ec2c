// Reads two tensors side by side.

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "server/analysis/compare/elementwise.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

// Golden tensors up to this size are read before the target, without a thread.
constexpr uint64_t kSmallTensor = 2 << 20;
constexpr size_t kChunksAhead = 4;

// Chunks of one tensor on their way between two threads; a bounded number.
class ChunkQueue {
 public:
  // False: nobody listens any more.
  bool Put(std::string chunk) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return chunks_.size() < kChunksAhead || abandoned_; });
    if (abandoned_) return false;
    chunks_.push_back(std::move(chunk));
    changed_.notify_all();
    return true;
  }
  void End(absl::Status status) {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    status_ = std::move(status);
    changed_.notify_all();
  }
  // False: the end.
  bool Take(std::string& chunk) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !chunks_.empty() || ended_; });
    if (chunks_.empty()) return false;
    chunk = std::move(chunks_.front());
    chunks_.pop_front();
    changed_.notify_all();
    return true;
  }
  void Abandon() {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
    changed_.notify_all();
  }
  absl::Status status() {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> chunks_;
  bool ended_ = false;
  bool abandoned_ = false;
  absl::Status status_;
};

absl::Status CountsDiffer() { return absl::InvalidArgumentError("the tensors have different numbers of elements"); }

// Pairs the target's chunks with the golden side's, whatever their sizes.
class Pairing {
 public:
  Pairing(ElementwiseComparison& comparison, std::function<bool(std::string&)> next_golden)
      : comparison_(comparison), next_golden_(std::move(next_golden)) {}

  absl::Status Add(std::string_view chunk) {
    if (!rest_.empty()) {
      rest_ += chunk;
      std::string whole = std::move(rest_);
      rest_.clear();
      return AddWhole(whole);
    }
    return AddWhole(chunk);
  }

  // Whether the golden side ended with the target.
  absl::Status Finish() {
    if (!rest_.empty() || golden_at_ != golden_.size()) return CountsDiffer();
    std::string more;
    while (next_golden_(more)) {
      if (!more.empty()) return CountsDiffer();
    }
    return absl::OkStatus();
  }

 private:
  absl::Status AddWhole(std::string_view chunk) {
    const size_t a_size = comparison_.target_size();
    const size_t b_size = comparison_.golden_size();
    while (chunk.size() >= a_size) {
      while (golden_.size() - golden_at_ < b_size) {
        std::string next;
        if (!next_golden_(next)) return CountsDiffer();
        golden_.erase(0, golden_at_);
        golden_at_ = 0;
        if (golden_.empty()) {
          golden_ = std::move(next);
        } else {
          golden_ += next;
        }
      }
      const size_t count = std::min(chunk.size() / a_size, (golden_.size() - golden_at_) / b_size);
      comparison_.Add(chunk.data(), golden_.data() + golden_at_, count);
      chunk.remove_prefix(count * a_size);
      golden_at_ += count * b_size;
    }
    rest_ = chunk;
    return absl::OkStatus();
  }

  ElementwiseComparison& comparison_;
  const std::function<bool(std::string&)> next_golden_;
  std::string rest_;
  std::string golden_;
  size_t golden_at_ = 0;
};

absl::Status ComparePairs(TensorSource& target, ElementwiseComparison& comparison,
                          const std::function<bool(std::string&)>& next) {
  Pairing pairing(comparison, next);
  if (absl::Status status = target.Read([&](std::string_view chunk) { return pairing.Add(chunk); }); !status.ok()) {
    return status;
  }
  return pairing.Finish();
}

}  // namespace

absl::StatusOr<ElementwiseMetrics> CompareElements(TensorSource& target, TensorSource& golden, Tolerance tolerance) {
  auto comparison = ElementwiseComparison::Start(target.description(), golden.description(), tolerance);
  if (!comparison.ok()) return comparison.status();
  auto size = ContentSize(golden.description());
  if (!size.ok()) return size.status();
  if (*size <= kSmallTensor) {
    std::string content;
    absl::Status status = golden.Read([&](std::string_view chunk) {
      content.append(chunk);
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    bool given = false;
    status = ComparePairs(target, *comparison, [&](std::string& chunk) {
      if (given) return false;
      given = true;
      chunk = std::move(content);
      return true;
    });
    if (!status.ok()) return status;
    return comparison->Finish();
  }
  ChunkQueue queue;
  std::thread reader([&] {
    queue.End(golden.Read([&](std::string_view chunk) {
      return queue.Put(std::string(chunk)) ? absl::OkStatus() : absl::CancelledError("");
    }));
  });
  absl::Status status = ComparePairs(target, *comparison, [&](std::string& chunk) { return queue.Take(chunk); });
  queue.Abandon();
  reader.join();
  const absl::Status golden_status = queue.status();
  if (!golden_status.ok() && !absl::IsCancelled(golden_status)) return golden_status;
  if (!status.ok()) return status;
  return comparison->Finish();
}

}  // namespace msprobe::server
