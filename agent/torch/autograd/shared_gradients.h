#pragma once

#include <atomic>

namespace msprobe::capture {

// Whether other ranks' gradients are added to those of this process. Reducers (DistributedDataParallel's, with
// gradients that are views of its buckets) write the sum in place; they leave no record and move no version. So then
// the version of a parameter's gradient tells nothing. Threads: any.
inline std::atomic<bool> gradients_are_shared{false};

}  // namespace msprobe::capture
