#include "agent/torch/device/device_reader.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "agent/core/background_thread.h"
#include "agent/core/doorbell.h"
#include "agent/core/str_cat.h"
#include "agent/torch/cuda/cuda_statistics.h"
#include "agent/torch/tensor/quiet_dispatch.h"
#include "agent/torch/torch_versions.h"

namespace msprobe::capture {
namespace {

// How old an open slab may become: what a kill -9 may lose of a device that keeps up.
constexpr std::chrono::milliseconds kLinger(20);
// Between two looks at what is under way.
constexpr std::chrono::microseconds kPoll(500);
constexpr std::chrono::seconds kStopBound(2);

std::atomic<DeviceReader*> the_reader{nullptr};
std::atomic<pid_t> the_process{0};

// CUDA takes what any thread asks while another one captures a graph for a fault of that graph, unless the thread that
// asks has said that it has no part in it. Nothing where there is no CUDA.
void StandAsideOfGraphCapture() {
  using Exchange = int (*)(int* mode);
  const auto exchange = reinterpret_cast<Exchange>(dlsym(RTLD_DEFAULT, "cudaThreadExchangeStreamCaptureMode"));
  int mode = 2;  // cudaStreamCaptureModeRelaxed
  if (exchange != nullptr) exchange(&mode);
}

// A type of the same size that every backend can copy.
at::Tensor AsCommonType(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case c10::kDouble:
    case c10::kComplexFloat:
    case c10::kComplexDouble:
      return tensor;
    default:
      break;
  }
  if (ReducesOnDevice(tensor.scalar_type())) return tensor;
  switch (tensor.element_size()) {
    case 1:
      return tensor.view(c10::kByte);
    case 2:
      return tensor.view(c10::kShort);
    case 4:
      return tensor.view(c10::kInt);
    case 8:
      return tensor.view(c10::kLong);
    default:
      return tensor;
  }
}

std::shared_ptr<core::Payload> PinnedPayload(core::Session* session, size_t bytes) {
  return session->AllocatePayload(bytes, [](size_t size) {
    const at::Tensor memory = PinnedMemory(size);
    return std::shared_ptr<std::byte>(static_cast<std::byte*>(memory.mutable_data_ptr()), [memory](std::byte*) {});
  });
}

// The part of the tensor that was asked for, each element once, without lazy bits.
DeviceRequest Describe(const DeviceReader::Request& asked) {
  DeviceRequest request;
  request.dtype = asked.dtype;
  request.mode = asked.mode;
  request.conjugate = asked.tensor.is_conj();
  request.negative = asked.tensor.is_neg();
  request.sizes.assign(asked.sizes.begin(), asked.sizes.end());
  std::vector<int64_t> once(request.sizes);
  const c10::IntArrayRef strides = asked.tensor.strides();
  for (size_t dim = 0; dim < once.size(); ++dim) {
    if (strides[dim] == 0) request.repeats *= std::exchange(once[dim], 1);
  }
  request.strides.resize(once.size());
  int64_t next = 1;
  for (size_t dim = once.size(); dim-- > 0;) {
    request.strides[dim] = once[dim] == 1 ? 0 : next;
    next *= once[dim];
  }
  request.tensor = asked.tensor;
  if (asked.tensor.sizes() != once || request.conjugate || request.negative) {
    request.tensor = asked.tensor.as_strided(once, strides, asked.tensor.storage_offset() + asked.offset);
    request.tensor._set_conj(false);
    request.tensor._set_neg(false);
  }
  return request;
}

}  // namespace

DeviceReader& DeviceReader::Get() {
  static core::Mutex mu;
  if (the_process != getpid()) {
    core::MutexLock lock(&mu);
    if (the_process != getpid()) {
      the_reader = new DeviceReader;  // never destroyed: its thread may be asking a driver until the very end
      the_process = getpid();
    }
  }
  return *the_reader;
}

void DeviceReader::FlushAll() {
  if (the_process == getpid()) Get().Flush();
}

void DeviceReader::StopAll() {
  if (the_process == getpid()) Get().Stop();
}

void DeviceReader::Read(const Request& asked, core::Leaf& leaf) {
  const c10::Device device = asked.tensor.device();
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return;
  const QuietDispatch quiet;
  const c10::DeviceGuard on_device(device);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  if (IsCapturing(stream)) return;
  StreamReader& reader = ReaderOf(stream);

  DeviceRequest request = Describe(asked);
  const size_t bytes = request.tensor.nbytes();
  const size_t bytes_in_truth = bytes * static_cast<size_t>(request.repeats);
  if (bytes <= StreamReader::kLargestRaw) {
    if (asked.save) leaf.payload = request.payload = asked.session->AllocatePayload(bytes_in_truth);
    request.tensor = AsCommonType(request.tensor);
    leaf.pending = reader.ReadRaw(std::move(request));
    return;
  }
  const bool reducible = ReducesOnDevice(request.tensor.scalar_type()) && !request.negative;
  const bool bytes_wanted = asked.save || asked.mode != core::SummaryMode::kStatistics;
  if (reducible && !bytes_wanted) leaf.pending = reader.ReadRows(request);
  if (leaf.pending != nullptr) return;

  const bool as_it_lies = request.repeats == 1 && !request.conjugate && !request.negative;
  request.memory = PinnedPayload(asked.session, bytes);
  if (asked.save && request.memory != nullptr) {
    request.payload = as_it_lies ? request.memory : asked.session->AllocatePayload(bytes_in_truth);
    leaf.payload = request.payload;
  }
  if (request.memory != nullptr) {
    request.tensor = AsCommonType(request.tensor);
    leaf.pending = reader.ReadInto(std::move(request));
  } else if (reducible && asked.mode == core::SummaryMode::kStatistics) {
    leaf.pending = reader.ReadRows(std::move(request));
  }
}

void DeviceReader::Await(core::Leaf& leaf) {
  if (leaf.pending == nullptr) return;
  Flush();
  const auto bell = std::make_shared<core::Doorbell>();
  leaf.pending->RingWhenDone(bell);
  bell->WaitUntil(Clock::now() + std::chrono::seconds(30));
  const std::shared_ptr<core::PendingReading> pending = std::exchange(leaf.pending, nullptr);
  if (pending->state() == core::PendingReading::State::kCame) {
    pending->Complete(leaf);
  } else {
    leaf.payload.reset();
  }
}

StreamReader& DeviceReader::ReaderOf(const c10::Stream& stream) {
  core::MutexLock lock(&mu_);
  if (!running_) StartThread();
  std::unique_ptr<StreamReader>& reader = readers_[KeyOf(stream)];
  if (reader == nullptr) {
    reader = std::make_unique<StreamReader>(
        stream,
        [this, stream](std::unique_ptr<DeviceBatch> batch) {
          core::MutexLock inner(&mu_);
          submitted_.push_back({readers_.find(KeyOf(stream))->second.get(), std::move(batch)});
          changed_.SignalAll();
        },
        [this] {
          core::MutexLock inner(&mu_);
          something_open_ = true;
          changed_.SignalAll();
        });
  }
  return *reader;
}

std::vector<StreamReader*> DeviceReader::readers() {
  core::MutexLock lock(&mu_);
  std::vector<StreamReader*> found;
  for (const auto& [key, reader] : readers_) found.push_back(reader.get());
  return found;
}

void DeviceReader::Flush() {
  const QuietDispatch quiet;
  for (StreamReader* reader : readers()) reader->Close(Clock::time_point::max());
}

void DeviceReader::StartThread() {
  running_ = true;
  stop_ = false;
  thread_ = core::StartBackgroundThread("msprobe-device", [this] { Run(); });
}

void DeviceReader::Stop() {
  core::MutexLock lock(&mu_);
  if (!thread_.joinable()) return;
  stop_ = true;
  changed_.SignalAll();
  // A driver that does not answer is left alone rather than waited for.
  const Clock::time_point deadline = Clock::now() + kStopBound;
  while (running_ && changed_.WaitUntil(&mu_, deadline)) {
  }
  if (running_) return;
  thread_.detach();
}

void DeviceReader::Run() {
  StandAsideOfGraphCapture();
  const QuietDispatch quiet;
  std::deque<Submitted> under_way;
  bool open = false;
  while (true) {
    {
      core::MutexLock lock(&mu_);
      if (!under_way.empty()) {
        if (submitted_.empty() && !stop_) changed_.WaitUntil(&mu_, Clock::now() + kPoll);
      } else if (open) {
        if (submitted_.empty() && !stop_) changed_.WaitUntil(&mu_, Clock::now() + kLinger / 4);
      } else {
        while (submitted_.empty() && !something_open_ && !stop_) changed_.Wait(&mu_);
      }
      for (Submitted& submitted : submitted_) under_way.push_back(std::move(submitted));
      submitted_.clear();
      something_open_ = false;
      if (stop_) {
        for (Submitted& submitted : under_way) submitted.batch->Lose();
        running_ = false;
        changed_.SignalAll();
        break;
      }
    }
    open = false;
    for (StreamReader* reader : readers()) open = reader->Close(Clock::now() - kLinger) || open;
    Look(under_way);
    for (StreamReader* reader : readers()) TryCudaKernels(reader->device());
  }
  // The device may still be writing: its batches stay.
  for (Submitted& submitted : under_way) static_cast<void>(submitted.batch.release());
}

void DeviceReader::Look(std::deque<Submitted>& under_way) {
  std::erase_if(under_way, [this](Submitted& submitted) {
    try {
      if (!submitted.batch->Arrived()) return false;
      submitted.batch->Settle();
      submitted.reader->Recycle(std::move(submitted.batch));
    } catch (const std::exception& error) {
      log_.Warning(core::Cat("msprobe: a device failed; records go without its numbers: ", error.what()));
      submitted.batch->Lose();
    }
    return true;
  });
}

}  // namespace msprobe::capture
