#include "agent/torch/cuda/cuda_driver.h"

#include <dlfcn.h>

namespace msprobe::capture {
namespace {

template <typename Function>
bool Get(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool Fill(CudaDriver& driver) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed: its handles are kept
  return library != nullptr && Get(library, "cuInit", driver.init) && Get(library, "cuDeviceGet", driver.device_get) &&
         Get(library, "cuDevicePrimaryCtxRetain", driver.primary_context_retain) &&
         Get(library, "cuCtxPushCurrent_v2", driver.context_push) &&
         Get(library, "cuCtxPopCurrent_v2", driver.context_pop) &&
         Get(library, "cuModuleLoadData", driver.module_load) &&
         Get(library, "cuModuleGetFunction", driver.function_get) && Get(library, "cuLaunchKernel", driver.launch) &&
         Get(library, "cuStreamIsCapturing", driver.stream_is_capturing) &&
         Get(library, "cuGetErrorName", driver.error_name);
}

}  // namespace

const CudaDriver* CudaDriver::Find() {
  static CudaDriver driver;
  static const bool found = Fill(driver);
  return found ? &driver : nullptr;
}

}  // namespace msprobe::capture
