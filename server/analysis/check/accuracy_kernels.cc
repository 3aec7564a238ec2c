#include "server/analysis/check/accuracy_kernels.h"

namespace msprobe::server {
namespace {

struct Supported {
  const AccuracyKernels* levels[3] = {&kPortableAccuracy, nullptr, nullptr};
  size_t count = 1;

  Supported() {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return;
    levels[count++] = &kAvx2Accuracy;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      levels[count++] = &kAvx512Accuracy;
    }
#endif
  }
};

const Supported& SupportedLevels() {
  static const Supported supported;
  return supported;
}

}  // namespace

std::span<const AccuracyKernels* const> SupportedAccuracyKernels() {
  return {SupportedLevels().levels, SupportedLevels().count};
}

const AccuracyKernels& BestAccuracyKernels() { return *SupportedLevels().levels[SupportedLevels().count - 1]; }

}  // namespace msprobe::server
