#pragma once

namespace msprobe::capture {

// The functions of the CUDA driver that the kernels need, as cuda.h of CUDA 12 declares them; handles are pointers.
// They are looked up in the process, so that neither CUDA's headers nor its libraries are needed to build.
struct CudaDriver {
  using Result = int;  // 0: done

  // libcuda.so.1's; null on a machine without it. Threads: any.
  static const CudaDriver* Find();

  Result (*init)(unsigned flags) = nullptr;
  Result (*device_get)(int* device, int ordinal) = nullptr;
  Result (*primary_context_retain)(void** context, int device) = nullptr;
  Result (*context_push)(void* context) = nullptr;
  Result (*context_pop)(void** context) = nullptr;
  Result (*module_load)(void** module, const void* image) = nullptr;
  Result (*function_get)(void** function, void* module, const char* name) = nullptr;
  Result (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** parameters,
                   void** extra) = nullptr;
  Result (*stream_is_capturing)(void* stream, int* status) = nullptr;
  Result (*error_name)(Result result, const char** name) = nullptr;
};

}  // namespace msprobe::capture
