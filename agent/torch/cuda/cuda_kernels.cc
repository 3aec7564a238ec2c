#include "agent/torch/cuda/cuda_kernels.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "agent/torch/cuda/cuda_reduction.h"
#include "agent/torch/device/device_pieces.h"

namespace msprobe::capture {
namespace {

static_assert(cuda::kRowBytes == kRowStride);

// cuda_kernels.cu compiled; empty where there was no compiler for it.
constexpr char kPtx[] =
#include "agent/torch/cuda/cuda_kernels.ptx.inc"
    ;

constexpr std::array<std::pair<stats::DType, const char*>, 9> kNames{{
    {stats::DType::kFloat32, "msprobe_float32"},
    {stats::DType::kFloat16, "msprobe_float16"},
    {stats::DType::kBFloat16, "msprobe_bfloat16"},
    {stats::DType::kBool, "msprobe_bool"},
    {stats::DType::kUInt8, "msprobe_uint8"},
    {stats::DType::kInt8, "msprobe_int8"},
    {stats::DType::kInt16, "msprobe_int16"},
    {stats::DType::kInt32, "msprobe_int32"},
    {stats::DType::kInt64, "msprobe_int64"},
}};

// Elements a block reads. As many blocks as keep a large device busy, of not so few elements that the last merge of
// their threads shows, and not so many that a row's float could not count them.
constexpr int64_t kBlocks = 512;
constexpr int64_t kMinChunk = int64_t{1} << 14;
constexpr int64_t kMaxChunk = int64_t{1} << 20;

int64_t ChunkOf(int64_t elements) {
  const int64_t even = (elements + kBlocks - 1) / kBlocks;
  const int64_t rounded = (even + kMinChunk - 1) / kMinChunk * kMinChunk;
  return std::clamp(rounded, kMinChunk, kMaxChunk);
}

int64_t BlocksOf(int64_t elements, int64_t chunk) { return (elements + chunk - 1) / chunk; }

absl::Status Refused(const CudaDriver& driver, const char* call, CudaDriver::Result result) {
  const char* name = nullptr;
  if (driver.error_name(result, &name) != 0 || name == nullptr) name = "an unknown error";
  return absl::InternalError(absl::StrCat(call, ": ", name, " (", result, ")"));
}

// The device's context is the thread's while this lives.
class CurrentContext {
 public:
  CurrentContext(const CudaDriver& driver, void* context) : driver_(driver), result_(driver.context_push(context)) {}
  ~CurrentContext() {
    void* popped = nullptr;
    if (result_ == 0) driver_.context_pop(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  CudaDriver::Result result() const { return result_; }

 private:
  const CudaDriver& driver_;
  const CudaDriver::Result result_;
};

}  // namespace

bool CudaKernels::Built() { return sizeof(kPtx) > 1; }

bool CudaKernels::Takes(stats::DType dtype) {
  return std::any_of(kNames.begin(), kNames.end(), [&](const auto& name) { return name.first == dtype; });
}

std::vector<int64_t> CudaKernels::PiecesOf(int64_t elements) {
  const int64_t chunk = ChunkOf(elements);
  std::vector<int64_t> pieces(BlocksOf(elements, chunk), chunk);
  pieces.back() = elements - chunk * (static_cast<int64_t>(pieces.size()) - 1);
  return pieces;
}

absl::StatusOr<std::unique_ptr<CudaKernels>> CudaKernels::Load(const CudaDriver& driver, int ordinal) {
  std::unique_ptr<CudaKernels> kernels(new CudaKernels(driver));
  int device = 0;
  if (const auto result = driver.init(0)) return Refused(driver, "cuInit", result);
  if (const auto result = driver.device_get(&device, ordinal)) return Refused(driver, "cuDeviceGet", result);
  if (const auto result = driver.primary_context_retain(&kernels->context_, device)) {
    return Refused(driver, "cuDevicePrimaryCtxRetain", result);
  }
  const CurrentContext context(driver, kernels->context_);
  if (context.result() != 0) return Refused(driver, "cuCtxPushCurrent", context.result());
  void* module = nullptr;  // never unloaded: a kernel may be running
  if (const auto result = driver.module_load(&module, kPtx)) return Refused(driver, "cuModuleLoadData", result);
  for (const auto& [dtype, name] : kNames) {
    if (const auto result = driver.function_get(&kernels->functions_[dtype], module, name)) {
      return Refused(driver, name, result);
    }
  }
  return kernels;
}

absl::Status CudaKernels::Launch(stats::DType dtype, const void* data, int64_t elements, void* rows,
                                 void* stream) const {
  const CurrentContext context(driver_, context_);
  if (context.result() != 0) return Refused(driver_, "cuCtxPushCurrent", context.result());
  int64_t chunk = ChunkOf(elements);
  // Parameters are passed by address, in the kernel's order.
  void* parameters[] = {&data, &elements, &chunk, &rows};
  const auto blocks = static_cast<unsigned>(BlocksOf(elements, chunk));
  const auto result =
      driver_.launch(functions_.at(dtype), blocks, 1, 1, cuda::kThreads, 1, 1, 0, stream, parameters, nullptr);
  return result == 0 ? absl::OkStatus() : Refused(driver_, "cuLaunchKernel", result);
}

}  // namespace msprobe::capture
