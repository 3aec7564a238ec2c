#pragma once

#include "msprobe/v1/analysis.pb.h"
#include "server/format/json/json_writer.h"

namespace msprobe::server {

// Writes {"step", "rank", "op", "module", "tensor", "dtype", "shape", "origin": "computation" | "weight" | "input",
// "nan": bool, "infinity": bool}.
void WriteOrigin(JsonWriter& json, const v1::Overflow& found);

}  // namespace msprobe::server
