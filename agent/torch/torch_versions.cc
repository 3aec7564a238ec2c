#include "agent/torch/torch_versions.h"

#include <dlfcn.h>

#include "agent/torch/cuda/cuda_driver.h"

namespace msprobe::capture {

void* CudaHandle(const c10::Stream& stream) {
  // c10::cuda::CUDAStream::stream() const, of an object that holds a c10::Stream and nothing else.
  using Function = void* (*)(const c10::Stream*);
  static const auto handle_of = [] {
    void* const library = dlopen("libc10_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<Function>(library == nullptr ? nullptr
                                                         : dlsym(library, "_ZNK3c104cuda10CUDAStream6streamEv"));
  }();
  return handle_of == nullptr ? nullptr : handle_of(&stream);
}

bool CudaIsCapturing(const c10::Stream& stream) {
  const CudaDriver* const driver = CudaDriver::Find();
  if (driver == nullptr) return false;
  int status = 0;  // CU_STREAM_CAPTURE_STATUS_NONE
  // An error says that the stream cannot be used while another one is captured.
  return driver->stream_is_capturing(CudaHandle(stream), &status) != 0 || status != 0;
}

}  // namespace msprobe::capture
