#pragma once

#include "msprobe/v1/ingest.pb.h"
#include "rapidjson/document.h"

namespace msprobe::server {

// A section of config.json as a session captured by it, such as "check". A sender may have written anything: what is no
// such object is an empty one.
rapidjson::Document CapturedSection(const v1::CaptureSettings& settings, const char* name);

}  // namespace msprobe::server
