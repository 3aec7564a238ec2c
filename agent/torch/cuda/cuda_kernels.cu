// The kernels of cuda_reduction.h as CUDA has them, one for each type; cuda_kernels.cc finds them by name.
// Compiled to PTX, which the driver compiles for the device it has.
#include "agent/torch/cuda/cuda_reduction.h"

namespace msprobe::capture::cuda {

struct CudaBlock {
  Partial* memory;

  MSPROBE_DEVICE int thread() const { return __nvvm_read_ptx_sreg_tid_x(); }
  MSPROBE_DEVICE int64_t chunk() const { return __nvvm_read_ptx_sreg_ctaid_x(); }
  MSPROBE_DEVICE Partial* shared() const { return memory; }
  MSPROBE_DEVICE void Synchronize() const { __syncthreads(); }
};

}  // namespace msprobe::capture::cuda

#define MSPROBE_KERNEL(name, T, kind)                                                                    \
  extern "C" __attribute__((global)) void msprobe_##name(const T* data, int64_t elements, int64_t chunk, \
                                                         unsigned char* rows) {                          \
    using namespace msprobe::capture;                                                                    \
    __attribute__((shared)) static unsigned char memory[sizeof(cuda::Partial) * cuda::kThreads]          \
        __attribute__((aligned(16)));                                                                    \
    const cuda::CudaBlock block{reinterpret_cast<cuda::Partial*>(memory)};                               \
    cuda::ReduceChunk<T, DeviceRowKind::kind>(block, data, elements, chunk, rows);                       \
  }

MSPROBE_KERNEL(float32, float, kFloating)
MSPROBE_KERNEL(float16, msprobe::capture::cuda::Half, kFloating)
MSPROBE_KERNEL(bfloat16, msprobe::capture::cuda::BFloat16, kFloating)
MSPROBE_KERNEL(bool, msprobe::capture::cuda::Bool, kNarrowInteger)
MSPROBE_KERNEL(uint8, uint8_t, kNarrowInteger)
MSPROBE_KERNEL(int8, int8_t, kNarrowInteger)
MSPROBE_KERNEL(int16, int16_t, kNarrowInteger)
MSPROBE_KERNEL(int32, int32_t, kWideInteger)
MSPROBE_KERNEL(int64, int64_t, kWideInteger)
