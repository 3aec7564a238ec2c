#pragma once

#include <functional>

#include "absl/time/time.h"

namespace msprobe::server {

// How often a run that goes on is looked at for who follows it.
inline constexpr absl::Duration kLookAgain = absl::Milliseconds(250);

// Waits until then. False: nobody listens any more.
bool WaitToLookAgain(const std::function<bool()>& cancelled);

}  // namespace msprobe::server
