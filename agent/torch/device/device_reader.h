#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "agent/core/config/config.h"
#include "agent/core/log.h"
#include "agent/core/mutex.h"
#include "agent/core/record.h"
#include "agent/core/session.h"
#include "agent/stats/tensor_view.h"
#include "agent/torch/device/stream_reader.h"

namespace msprobe::capture {

// Reads tensors of a device without waiting for it. A reading is launched on the tensor's stream, gathered with others
// in a slab, and copied to the host when the slab is full, 20 ms old, or flushed; a thread of our own sees the copy
// arrive and tells those who wait (core::PendingReading). The program's threads never wait here, but for room under
// the session's memory ceiling, as the loss policy has it.
//
// How a tensor is read:
//   up to 64 KiB                            its bytes go into the slab; the host's numbers and checksums
//   statistics of floats up to 32 bits,     reduced on the device (DeviceStatistics): extremes and counts exact, sums
//     bool, signed integers, uint8          as exact as float sums are; on CUDA by a kernel of ours (CudaKernels)
//   everything else: a checksum, the        an asynchronous copy of its own into pinned memory under the ceiling; the
//     tensor task, other types              host's numbers and checksums
//
// While a stream is being captured into a graph, none of its tensors is read: the graph is launched again without us.
//
// One for the process. Threads: any.
class DeviceReader {
 public:
  static DeviceReader& Get();  // in a forked child another one than the parent's
  static void FlushAll();      // submits the open batches, if there is a reader
  static void StopAll();       // ends the thread; readings under way are lost. The next reading starts it again

  struct Request {
    const at::Tensor& tensor;  // strided, not quantized, inside its storage
    stats::DType dtype;
    std::span<const int64_t> sizes;  // of the part to read, not empty of elements
    int64_t offset = 0;              // of the part, in elements from the tensor's first
    core::SummaryMode mode = core::SummaryMode::kStatistics;
    bool save = false;
    core::Session* session = nullptr;  // gives memory
  };
  // Sets pending, and with save payload. Leaves `leaf` as it is where nothing can be read.
  void Read(const Request& request, core::Leaf& leaf);
  // Waits for the device, as nothing else here does, and completes `leaf`.
  void Await(core::Leaf& leaf);

 private:
  using Clock = std::chrono::steady_clock;
  struct Submitted {
    StreamReader* reader;
    std::unique_ptr<DeviceBatch> batch;
  };

  DeviceReader() = default;
  StreamReader& ReaderOf(const c10::Stream& stream);
  std::vector<StreamReader*> readers();
  void Flush();
  void Stop();
  void StartThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();
  // Settles the batches that have arrived.
  void Look(std::deque<Submitted>& under_way);

  const core::Log log_{};
  core::Mutex mu_;
  core::CondVar changed_;
  std::thread thread_ ABSL_GUARDED_BY(mu_);
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool something_open_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Submitted> submitted_ ABSL_GUARDED_BY(mu_);
  // By device type, device index and stream. Readers live as long as the reader.
  using StreamKey = std::tuple<c10::DeviceType, c10::DeviceIndex, c10::StreamId>;
  static StreamKey KeyOf(const c10::Stream& stream) {
    return {stream.device_type(), stream.device_index(), stream.id()};
  }
  std::map<StreamKey, std::unique_ptr<StreamReader>> readers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::capture
