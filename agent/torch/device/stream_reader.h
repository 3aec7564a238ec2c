#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "agent/core/config/config.h"
#include "agent/core/log.h"
#include "agent/core/mutex.h"
#include "agent/core/record.h"
#include "agent/stats/tensor_view.h"
#include "agent/torch/device/device_reading.h"
#include "agent/torch/device/device_slab.h"
#include "agent/torch/device/device_statistics.h"

namespace msprobe::capture {

// One tensor of a device that is to be read, and how its elements will lie in host memory.
struct DeviceRequest {
  at::Tensor tensor;  // the elements, each once: dimensions that were expanded have size 1
  stats::DType dtype = stats::DType::kOther;
  core::SummaryMode mode = core::SummaryMode::kStatistics;
  bool conjugate = false, negative = false;  // lazy bits that `tensor` no longer has
  std::vector<int64_t> sizes;                // the tensor's own
  std::vector<int64_t> strides;              // of the copy on the host
  int64_t repeats = 1;                       // elements of the tensor itself for each one of `tensor`
  std::shared_ptr<core::Payload> payload;    // to be filled; may be null
  std::shared_ptr<core::Payload> memory;     // for ReadInto: the copy's; may be the payload itself
};

// Readings that were submitted together, on their way to the host.
class DeviceBatch {
 public:
  explicit DeviceBatch(const c10::Stream& stream) : slab_(stream) {}

  // Asks the device; throws what libtorch throws.
  bool Arrived() const { return slab_.Arrived(); }
  void Settle();  // it has arrived: computes the rest of the numbers and gives them to the readings
  void Lose();    // the readings go without numbers
  void Reset();

 private:
  friend class StreamReader;

  struct Entry {
    std::shared_ptr<DeviceReading> reading;
    DeviceRequest request;                // without its tensor
    size_t offset = 0;                    // in the slab
    std::vector<int64_t> piece_elements;  // not empty: there are as many rows at the offset, kRowStride apart
  };

  DeviceSlab slab_;
  std::vector<Entry> entries_;
  size_t own_bytes_ = 0;
  std::chrono::steady_clock::time_point opened_;
};

// Reads the tensors of one stream of a device. A reading is launched on the stream at once, behind the work that makes
// the tensor. So nobody waits, and the tensor may change later.
//
// Invariants:
// 1. One copy to the host for each batch, and one for each tensor whose bytes do not fit a slab.
// 2. Nothing is allocated on the device for a tensor: slabs and scratch memory are used again.
// 3. No operator launched here takes the GIL, which other threads may hold while they wait for mu_.
//
// Threads: any. The stream must be the caller's current one for the Read methods. Under QuietDispatch.
class StreamReader {
 public:
  using Clock = std::chrono::steady_clock;
  // Takes a batch that has been submitted; called under the reader's lock.
  using Submitted = std::function<void(std::unique_ptr<DeviceBatch>)>;

  // A tensor of at most so many bytes is copied into the slab whole: one launch instead of eighteen, and the numbers
  // are the host's.
  static constexpr size_t kLargestRaw = size_t{64} << 10;
  // Bytes copied outside of the slab after which a batch is submitted.
  static constexpr size_t kOwnBytes = size_t{16} << 20;

  // `opened` is called, under the reader's lock, when a batch is begun.
  StreamReader(const c10::Stream& stream, Submitted submitted, std::function<void()> opened);

  std::shared_ptr<DeviceReading> ReadRaw(DeviceRequest request);
  // Reduces on the device. Null: this backend lacks an operator; it is not asked again.
  std::shared_ptr<DeviceReading> ReadRows(DeviceRequest request);
  std::shared_ptr<DeviceReading> ReadInto(DeviceRequest request);
  bool reduces() const;
  c10::Device device() const { return stream_.device(); }

  // Submits the open batch, if it was opened before `before`. True: a batch is still open.
  bool Close(Clock::time_point before) noexcept;
  void Recycle(std::unique_ptr<DeviceBatch> batch);

 private:
  // Room in the open batch. A batch that has too little is submitted first.
  size_t Reserve(size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Submit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Null, with the request as it was: not by a kernel of our own.
  std::shared_ptr<DeviceReading> ReduceByKernel(DeviceRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<DeviceReading> Add(DeviceRequest request, size_t offset, std::vector<int64_t> piece_elements)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const c10::Stream stream_;
  const Submitted submitted_;
  const std::function<void()> opened_;
  const core::Log log_;

  mutable core::Mutex mu_;
  std::unique_ptr<DeviceBatch> open_ ABSL_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<DeviceBatch>> spare_ ABSL_GUARDED_BY(mu_);
  std::optional<DeviceStatistics> statistics_ ABSL_GUARDED_BY(mu_);
  bool reduces_ ABSL_GUARDED_BY(mu_) = true;
};

}  // namespace msprobe::capture
