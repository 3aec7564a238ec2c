#include "server/analysis/check/accuracy_kernels.h"

namespace msprobe::server {
namespace {

constexpr size_t kVectorLanes = 4;

}  // namespace
}  // namespace msprobe::server

#include "server/analysis/check/accuracy_vectors.h"
// It goes on with what that defines.
#include "server/analysis/check/accuracy_kernels_template.h"

namespace msprobe::server {

const AccuracyKernels kAvx2Accuracy = MakeAccuracyKernels("avx2");

}  // namespace msprobe::server
