#pragma once

#include <cstdint>
#include <optional>

#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

// Records and payloads that were lost and have no gap marker yet.
struct Loss {
  std::optional<uint32_t> step;  // absent: the step of the next record
  uint64_t fragments = 0;
  uint64_t payloads = 0;
  v1::Marker::Gap::Reason reason = v1::Marker::Gap::REASON_UNSPECIFIED;
};

}  // namespace msprobe::core
