#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function_hook.h>

// What torch's minor versions have differently. Its headers are asked, not its version number: so what a version has is
// found where it has it. Everything else in this room is the same for all of them.

namespace msprobe::capture {

// Types of elements that came later; where they are missing, a value that no tensor has.
template <typename Type = c10::ScalarType>
constexpr Type Float8E8M0FNU() {
  if constexpr (requires { Type::Float8_e8m0fnu; }) return Type::Float8_e8m0fnu;
  return static_cast<Type>(127);
}
template <typename Type = c10::ScalarType>
constexpr Type Float4E2M1FNX2() {
  if constexpr (requires { Type::Float4_e2m1fn_x2; }) return Type::Float4_e2m1fn_x2;
  return static_cast<Type>(127);
}

// A hook on an autograd node that a compiled graph leaves out. One of the two is torch's virtual function, which was
// not const before 2.7.
template <typename Hook>
class UncompiledHook : public Hook {
 public:
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const {}  // NOLINT(modernize-use-override)
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) {}        // NOLINT(modernize-use-override)
};

// The same by CUDA itself, for torch before it could be asked. Threads: any.
void* CudaHandle(const c10::Stream& stream);
bool CudaIsCapturing(const c10::Stream& stream);

// The backend's own handle of a stream.
template <typename Stream>
void* NativeHandle(const Stream& stream) {
  if constexpr (requires { stream.native_handle(); }) {
    return stream.native_handle();
  } else {
    return CudaHandle(stream);
  }
}

// Whether a stream is being captured into a graph. Before torch could be asked: of CUDA's streams alone.
template <typename Guard = c10::impl::VirtualGuardImpl>
bool IsCapturing(const c10::Stream& stream) {
  if constexpr (requires(const Guard& guard) { guard.isStreamCapturing(stream); }) {
    return Guard(stream.device_type()).isStreamCapturing(stream);
  } else {
    return stream.device_type() == c10::kCUDA && CudaIsCapturing(stream);
  }
}

}  // namespace msprobe::capture
