#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "msprobe/v1/control.pb.h"
#include "server/control/run_control.h"
#include "server/shards/missing_shards.h"
#include "server/shards/peers.h"
#include "server/store/catalogue.h"

namespace msprobe::server {

// Does RunControl::Ask on every server of the run, side by side, because each process is connected to one of them.
// Servers that cannot be asked are added to `missing`; the processes on the others get the command all the same.
// NotFound: no server that answered has a process that the request means.
absl::Status AskCluster(RunControl& here, const Catalogue& catalogue, Peers& peers,
                        const v1::ControlRunRequest& request, const std::string& asked_by,
                        const std::function<bool()>& cancelled, MissingShards& missing,
                        v1::ControlRunResponse* response);

}  // namespace msprobe::server
