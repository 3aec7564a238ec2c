#pragma once

#include <cstdint>
#include <optional>

#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

// What was lost and has no marker yet.
struct Loss {
  std::optional<uint32_t> step;  // absent: that of what comes next
  uint64_t fragments = 0;
  uint64_t payloads = 0;
  v1::Marker::Gap::Reason reason = v1::Marker::Gap::REASON_UNSPECIFIED;
};

}  // namespace msprobe::core
