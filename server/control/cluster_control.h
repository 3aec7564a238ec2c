#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "msprobe/v1/control.pb.h"
#include "server/control/run_control.h"
#include "server/shards/missing_shards.h"
#include "server/shards/peers.h"
#include "server/store/store.h"

namespace msprobe::server {

// RunControl::Ask of every server that a run lies on, side by side: a process hears it from the server on which it
// sends. Who cannot be asked is added to `missing`; the processes of the others have heard it all the same.
// NotFound: no server that answered has a process that was meant.
absl::Status AskCluster(RunControl& here, const Store& store, Peers& peers, const v1::ControlRunRequest& request,
                        const std::string& asked_by, const std::function<bool()>& cancelled, MissingShards& missing,
                        v1::ControlRunResponse* response);

}  // namespace msprobe::server
