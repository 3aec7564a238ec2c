#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "agent/stats/fleeting_memory.h"
#include "agent/stats/tensor_view.h"

namespace msprobe::stats {

// Describes the addresses of a view's elements with as few dimensions as possible. Immutable. Borrows the view's
// memory. Allocates nothing for up to 8 dimensions. Threads: any.
//
// Invariants:
// 1. An element that is visited once here occurs repeats() times in the view.
// 2. No dimension has size 1, and no two neighbouring dimensions could be joined.
class Layout {
 public:
  enum class Order {
    kRowMajor,  // the order of the elements, which checksums need; repeats() is 1
    kAny,       // the order of memory: dimensions are sorted and flipped, and repeats() counts those with stride 0
  };

  // Bytes that a sink gets at once if elements must be gathered; a multiple of every element size and of 8.
  static constexpr size_t kGatherBytes = 16384;

  Layout(const TensorView& view, Order order);

  uint64_t repeats() const { return repeats_; }

  struct Run {
    const void* elements;
    size_t count;
  };
  // All elements, where they lie one behind the other, naturally aligned, and no lazy bit changes them (`resolve`:
  // those count). Nothing: use ForEachRun.
  std::optional<Run> whole(bool resolve) const;

  // Calls sink(const void* elements, size_t count) for consecutive runs of elements. A run has at most `limit_bytes`
  // and is naturally aligned. Long runs are passed in place, or as copies of fleeting memory; others are gathered on
  // the stack. `resolve`: applies the lazy conj and neg bits.
  template <typename Sink>
  void ForEachRun(size_t limit_bytes, bool resolve, Sink&& sink) const;

 private:
  struct Dimension {
    int64_t size;
    int64_t stride;  // bytes
  };
  using Dimensions = absl::InlinedVector<Dimension, 8>;

  // Calls visit(const char* first) for the first element of each innermost dimension.
  template <typename Visit>
  void ForEachInner(Visit&& visit) const;

  bool Rewrites(bool resolve) const { return resolve && (conjugate_ || negative_); }
  bool dense() const { return inner_.stride == static_cast<int64_t>(element_size_); }

  // Copies `count` elements that lie `stride` bytes apart.
  static void Gather(const char* from, int64_t stride, size_t count, size_t element_size, char* to);
  // Applies the lazy bits to `count` elements.
  static void Resolve(DType dtype, bool conjugate, bool negative, char* elements, size_t count);

  const char* first_;
  FleetingMemory* fleeting_;
  DType dtype_;
  bool conjugate_;
  bool negative_;
  bool aligned_;
  size_t element_size_;
  uint64_t repeats_ = 1;
  bool empty_;
  Dimensions outer_;   // outermost first
  Dimension inner_{};  // the innermost dimension; has size 1 for a single element
};

template <typename Visit>
void Layout::ForEachInner(Visit&& visit) const {
  if (outer_.empty()) {
    visit(first_);
    return;
  }
  absl::InlinedVector<int64_t, 8> index(outer_.size(), 0);
  const char* at = first_;
  while (true) {
    visit(at);
    size_t d = outer_.size();
    while (d > 0) {
      --d;
      at += outer_[d].stride;
      if (++index[d] < outer_[d].size) break;
      at -= outer_[d].stride * outer_[d].size;
      index[d] = 0;
      if (d == 0) return;
    }
  }
}

template <typename Sink>
void Layout::ForEachRun(size_t limit_bytes, bool resolve, Sink&& sink) const {
  if (empty_) return;
  const bool rewrite = Rewrites(resolve);
  const size_t run = static_cast<size_t>(inner_.size);
  constexpr size_t kLongRunBytes = 2048;  // from this size on, a call of the sink costs less than copying the run
  if (dense() && aligned_ && !rewrite && (outer_.empty() || run * element_size_ >= kLongRunBytes)) {
    const size_t limit = std::max<size_t>(1, limit_bytes / element_size_);
    ForEachInner([&](const char* from) {
      for (size_t done = 0; done < run;) {
        const size_t count = std::min(limit, run - done);
        const void* const elements = from + done * element_size_;
        sink(fleeting_ == nullptr ? elements : fleeting_->At(elements, count * element_size_), count);
        done += count;
      }
    });
    return;
  }

  alignas(64) char buffer[kGatherBytes];
  const size_t capacity = std::min(kGatherBytes, limit_bytes) / element_size_;
  size_t filled = 0;
  auto flush = [&] {
    if (filled == 0) return;
    if (rewrite) Resolve(dtype_, conjugate_, negative_, buffer, filled);
    sink(static_cast<const void*>(buffer), filled);
    filled = 0;
  };
  ForEachInner([&](const char* from) {
    for (size_t done = 0; done < run;) {
      const size_t count = std::min(capacity - filled, run - done);
      Gather(from + static_cast<int64_t>(done) * inner_.stride, inner_.stride, count, element_size_,
             buffer + filled * element_size_);
      filled += count;
      done += count;
      if (filled == capacity) flush();
    }
  });
  flush();
}

}  // namespace msprobe::stats
