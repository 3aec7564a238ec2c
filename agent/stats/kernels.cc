#include "agent/stats/kernels.h"

namespace msprobe::stats {
namespace {

struct Supported {
  const Kernels* levels[3] = {&kPortableKernels, nullptr, nullptr};
  size_t count = 1;

  Supported() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {  // every such processor has F16C too
      levels[count++] = &kAvx2Kernels;
      if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
        levels[count++] = &kAvx512Kernels;
      }
    }
#elif defined(__aarch64__)
    levels[count++] = &kNeonKernels;
#endif
  }
};

const Supported& Levels() {
  static const Supported supported;
  return supported;
}

}  // namespace

std::span<const Kernels* const> SupportedKernels() { return {Levels().levels, Levels().count}; }

const Kernels& BestKernels() { return *Levels().levels[Levels().count - 1]; }

}  // namespace msprobe::stats
