#include "agent/torch/strings/probe_operator.h"

#include <torch/library.h>

namespace msprobe::capture {
namespace {

void ProbeNothing(const at::Tensor&, const at::Tensor&, int64_t, int64_t) {}

}  // namespace

void EnsureProbeOperator() {}

TORCH_LIBRARY(msprobe, library) {
  library.def("probe(Tensor x, Tensor(a!) slots, int index, int table) -> ()", {at::Tag::pt2_compliant_tag});
}
TORCH_LIBRARY_IMPL(msprobe, CPU, library) { library.impl("probe", &RunProbe); }
TORCH_LIBRARY_IMPL(msprobe, CUDA, library) { library.impl("probe", &RunProbe); }
TORCH_LIBRARY_IMPL(msprobe, PrivateUse1, library) { library.impl("probe", &RunProbe); }
TORCH_LIBRARY_IMPL(msprobe, Meta, library) { library.impl("probe", &ProbeNothing); }

}  // namespace msprobe::capture
