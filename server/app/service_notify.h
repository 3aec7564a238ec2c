#pragma once

#include <string_view>

namespace msprobe::server {

// Tells systemd how the service stands: "READY=1", "RELOADING=1", "STOPPING=1" (sd_notify(3)). Nothing where the
// process is not a unit of Type=notify.
void NotifyService(std::string_view state);

}  // namespace msprobe::server
