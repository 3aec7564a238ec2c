#pragma once

#include <string_view>

namespace msprobe::server {

// Tells systemd the state of the service: "READY=1", "RELOADING=1", "STOPPING=1" (sd_notify(3)). Does nothing if the
// process is not a systemd unit with Type=notify.
void NotifyService(std::string_view state);

}  // namespace msprobe::server
