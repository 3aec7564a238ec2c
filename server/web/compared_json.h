#pragma once

#include "msprobe/v1/analysis.pb.h"
#include "server/format/json/json_writer.h"

namespace msprobe::server {

// Fields of an object, for a tensor of two sides: "name", "statistic", "dtype", "shape", "target", "golden", "excess".
void WriteCompared(JsonWriter& json, const v1::ComparedTensor& row);

}  // namespace msprobe::server
