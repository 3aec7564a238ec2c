#include "server/query/look_again.h"

#include "absl/time/clock.h"

namespace msprobe::server {

bool WaitToLookAgain(const std::function<bool()>& cancelled) {
  constexpr int kPauses = 5;
  for (int pause = 0; pause < kPauses; ++pause) {
    if (cancelled()) return false;
    absl::SleepFor(kLookAgain / kPauses);
  }
  return true;
}

}  // namespace msprobe::server
