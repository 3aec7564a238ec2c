#include "server/web/golden_side.h"

#include <string>

#include "server/format/cat.h"

namespace msprobe::server {

absl::StatusOr<bool> IsGoldenSide(const WebQuery& query) {
  const std::string side = query.Text("side");
  if (side.empty() || side == "target") return false;
  if (side != "golden") return absl::InvalidArgumentError(Cat("side=", side, " is neither target nor golden"));
  if (query.Text("golden").empty()) {
    return absl::InvalidArgumentError("side=golden needs the parameter golden, a run");
  }
  return true;
}

}  // namespace msprobe::server
