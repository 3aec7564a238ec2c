#include "server/analysis/check/benchmark_level.h"

#include <algorithm>
#include <array>

namespace msprobe::server {
namespace {

constexpr auto kLevel1 = std::to_array<std::string_view>(
    {"embedding", "npu_fusion_attention_grad", "npu_fusion_attention", "scatter_", "scatter_add_"});
constexpr auto kLevel2 = std::to_array<std::string_view>(
    {"addmm", "npu_cross_entropy_loss", "npu_cross_entropy_loss_backward", "GELU", "layer_norm", "matmul", "mm",
     "index", "one_hot", "sum", "npu_rms_norm", "npu_rms_norm_backward", "nonzero"});

template <size_t kSize>
bool Has(const std::array<std::string_view, kSize>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

BenchmarkLevel LevelOf(std::string_view operation) {
  if (Has(kLevel2, operation)) return {"L2", 2, 1.2, 1.2};
  if (Has(kLevel1, operation)) return {"L1", 5, 1.5, 1.5};
  return {"L0", 10, 2, 2};
}

}  // namespace msprobe::server
