#include "agent/torch/cuda/cuda_statistics.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "agent/core/log.h"
#include "agent/core/str_cat.h"
#include "agent/torch/cuda/cuda_driver.h"
#include "agent/torch/cuda/cuda_trial.h"
#include "agent/torch/device/device_slab.h"
#include "agent/torch/device/device_text.h"
#include "agent/torch/tensor/tensor_reader.h"
#include "agent/torch/torch_versions.h"

namespace msprobe::capture {
namespace {

constexpr size_t kDevices = 64;

// A trial on its way to the device and back.
struct UnderWay {
  CudaTrial trial;
  at::Tensor sent;  // pinned; the device reads it
  DeviceSlab slab;
  std::unique_ptr<CudaKernels> kernels;
};

struct Candidate {
  std::atomic<const CudaKernels*> trusted{nullptr};  // never deleted
  std::atomic<bool> refused{false};
  // Of the thread that tries.
  bool settled = false;
  std::unique_ptr<UnderWay> under_way;
};

// By index. Never destroyed: a device may still be writing.
std::array<Candidate, kDevices>& candidates() {
  static auto* const all = new std::array<Candidate, kDevices>;
  return *all;
}

Candidate* CandidateOf(c10::Device device) {
  const auto index = static_cast<size_t>(device.index());
  return device.is_cuda() && device.index() >= 0 && index < kDevices ? &candidates()[index] : nullptr;
}

bool SwitchedOn() {
  const char* const value = std::getenv("MSPROBE_CUDA_KERNELS");
  return value != nullptr && std::string_view(value) == "on";
}

absl::StatusOr<std::unique_ptr<UnderWay>> Begin(c10::Device device, const CudaDriver& driver) {
  absl::StatusOr<std::unique_ptr<CudaKernels>> kernels = CudaKernels::Load(driver, device.index());
  if (!kernels.ok()) return kernels.status();

  const c10::DeviceGuard on_device(device);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  const c10::StreamGuard on_stream(stream);
  CudaTrial trial;
  const size_t bytes = trial.bytes();
  auto under_way = std::make_unique<UnderWay>(
      UnderWay{std::move(trial), PinnedMemory(bytes), DeviceSlab(stream), *std::move(kernels)});
  under_way->trial.Fill({static_cast<std::byte*>(under_way->sent.mutable_data_ptr()), bytes});
  const size_t offset = under_way->slab.Reserve(bytes).value();
  const at::Tensor there = under_way->slab.View(offset, c10::kByte, {static_cast<int64_t>(bytes)});
  there.copy_(under_way->sent, true);
  absl::Status launched = under_way->trial.Launch(
      *under_way->kernels, static_cast<std::byte*>(there.mutable_data_ptr()), NativeHandle(stream));
  if (!launched.ok()) return launched;
  under_way->slab.Submit();
  return under_way;
}

}  // namespace

const CudaKernels* CudaKernelsOf(c10::Device device) {
  const Candidate* const candidate = CandidateOf(device);
  return candidate == nullptr ? nullptr : candidate->trusted.load(std::memory_order_acquire);
}

bool CudaKernelsTake(const at::Tensor& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  return tensor.is_non_overlapping_and_dense() && address % tensor.element_size() == 0 &&
         CudaKernels::Takes(static_cast<stats::DType>(WireDType(tensor.scalar_type())));
}

void TryCudaKernels(c10::Device device) noexcept {
  Candidate* const candidate = CandidateOf(device);
  if (candidate == nullptr || candidate->settled) return;
  absl::Status failed;
  try {
    if (candidate->under_way == nullptr) {
      // A device of CUDA's name without CUDA's driver is one of ROCm.
      const CudaDriver* const driver = CudaKernels::Built() && SwitchedOn() ? CudaDriver::Find() : nullptr;
      candidate->settled = driver == nullptr;
      if (candidate->settled) return;
      absl::StatusOr<std::unique_ptr<UnderWay>> begun = Begin(device, *driver);
      failed = begun.status();
      if (begun.ok()) candidate->under_way = *std::move(begun);
    } else if (candidate->under_way->slab.Arrived()) {
      candidate->settled = true;
      failed = candidate->under_way->trial.Judge(candidate->under_way->slab.host());
      if (failed.ok()) {
        candidate->trusted.store(candidate->under_way->kernels.release(), std::memory_order_release);
        core::Log().Debug(core::Cat("msprobe: ", DeviceText(device), " computes statistics by kernels of msprobe's"));
      }
      candidate->under_way.reset();
    }
  } catch (const std::exception& error) {
    failed = absl::InternalError(error.what());
  }
  if (failed.ok()) return;
  candidate->settled = true;
  RefuseCudaKernels(device, failed);
}

void RefuseCudaKernels(c10::Device device, const absl::Status& why) {
  Candidate* const candidate = CandidateOf(device);
  if (candidate == nullptr || candidate->refused.exchange(true)) return;
  candidate->trusted.store(nullptr, std::memory_order_release);
  core::Log().Warning(core::Cat("msprobe: ", DeviceText(device),
                                " computes statistics by torch's operators, not by kernels of "
                                "msprobe's: ",
                                why.message()));
}

}  // namespace msprobe::capture
