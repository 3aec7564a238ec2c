// Reads two tensors side by side.

#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
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
    const absl::MutexLock lock(&mu_, absl::Condition(this, &ChunkQueue::MayPut));
    if (abandoned_) return false;
    chunks_.push_back(std::move(chunk));
    return true;
  }
  void End(absl::Status status) {
    const absl::MutexLock lock(&mu_);
    ended_ = true;
    status_ = std::move(status);
  }
  // False: the end.
  bool Take(std::string& chunk) {
    const absl::MutexLock lock(&mu_, absl::Condition(this, &ChunkQueue::MayTake));
    if (chunks_.empty()) return false;
    chunk = std::move(chunks_.front());
    chunks_.pop_front();
    return true;
  }
  void Abandon() {
    const absl::MutexLock lock(&mu_);
    abandoned_ = true;
  }
  absl::Status status() const {
    const absl::MutexLock lock(&mu_);
    return status_;
  }

 private:
  bool MayPut() const ABSL_SHARED_LOCKS_REQUIRED(mu_) { return chunks_.size() < kChunksAhead || abandoned_; }
  bool MayTake() const ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !chunks_.empty() || ended_; }

  mutable absl::Mutex mu_;
  std::deque<std::string> chunks_ ABSL_GUARDED_BY(mu_);
  bool ended_ ABSL_GUARDED_BY(mu_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

absl::Status CountsDiffer() { return absl::InvalidArgumentError("the tensors have different numbers of elements"); }

// Pairs the target's chunks with the golden side's, whatever their sizes.
class Pairing {
 public:
  Pairing(ElementwiseComparison& comparison, std::function<bool(std::string&)> next_golden,
          const ElementsVisitor& visit)
      : comparison_(comparison), next_golden_(std::move(next_golden)), visit_(visit) {}

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
      if (visit_) visit_(chunk.data(), golden_.data() + golden_at_, count);
      chunk.remove_prefix(count * a_size);
      golden_at_ += count * b_size;
    }
    rest_ = chunk;
    return absl::OkStatus();
  }

  ElementwiseComparison& comparison_;
  const std::function<bool(std::string&)> next_golden_;
  const ElementsVisitor& visit_;
  std::string rest_;
  std::string golden_;
  size_t golden_at_ = 0;
};

absl::Status ComparePairs(TensorElements& target, ElementwiseComparison& comparison,
                          const std::function<bool(std::string&)>& next, const ElementsVisitor& visit) {
  Pairing pairing(comparison, next, visit);
  if (absl::Status status = target.Read([&](std::string_view chunk) { return pairing.Add(chunk); }); !status.ok()) {
    return status;
  }
  return pairing.Finish();
}

}  // namespace

absl::StatusOr<ElementwiseMetrics> CompareElements(TensorElements& target, TensorElements& golden, Tolerance tolerance,
                                                   const ElementsVisitor& visit) {
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
    const auto next = [&](std::string& chunk) {
      if (given) return false;
      given = true;
      chunk = std::move(content);
      return true;
    };
    status = ComparePairs(target, *comparison, next, visit);
    if (!status.ok()) return status;
    return comparison->Finish();
  }
  ChunkQueue queue;
  std::thread reader([&] {
    queue.End(golden.Read([&](std::string_view chunk) {
      return queue.Put(std::string(chunk)) ? absl::OkStatus() : absl::CancelledError("");
    }));
  });
  const auto next = [&](std::string& chunk) { return queue.Take(chunk); };
  absl::Status status = ComparePairs(target, *comparison, next, visit);
  queue.Abandon();
  reader.join();
  const absl::Status golden_status = queue.status();
  if (!golden_status.ok() && !absl::IsCancelled(golden_status)) return golden_status;
  if (!status.ok()) return status;
  return comparison->Finish();
}

}  // namespace msprobe::server
