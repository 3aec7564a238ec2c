#pragma once

#include <c10/core/Stream.h>

#include "tests/npu_backend/stream.h"

namespace npu_backend {

// The calling thread's current stream.
Stream& CurrentStream();
int64_t CurrentStreamId();

c10::Stream NewStream();  // one of the pool, in turn

}  // namespace npu_backend
