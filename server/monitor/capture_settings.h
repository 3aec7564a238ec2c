#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "msprobe/v1/monitor.pb.h"

namespace msprobe::server {

// What a rule asks for (Rule.capture), with the defaults filled in.
struct CaptureSettings {
  std::string json;   // fields of the configuration, an object
  std::string shown;  // "the next 2 steps, level mix"
  uint32_t steps = 2;
  uint32_t times = 3;
  uint64_t bytes = uint64_t{1} << 30;
};
CaptureSettings CaptureSettingsOf(const v1::DeeperCapture& capture);

// InvalidArgument names the field, its value and what is allowed.
absl::Status CheckCapture(const v1::DeeperCapture& capture);

}  // namespace msprobe::server
