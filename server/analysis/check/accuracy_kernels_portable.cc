#include "server/analysis/check/accuracy_kernels.h"

namespace msprobe::server {
namespace {

constexpr size_t kVectorLanes = 2;  // of SSE2 or NEON

}  // namespace
}  // namespace msprobe::server

#include "server/analysis/check/accuracy_vectors.h"
// It goes on with what that defines.
#include "server/analysis/check/accuracy_kernels_template.h"

namespace msprobe::server {

const AccuracyKernels kPortableAccuracy = MakeAccuracyKernels("portable");

}  // namespace msprobe::server
