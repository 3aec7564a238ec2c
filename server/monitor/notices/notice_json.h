#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/format/json/json_writer.h"

namespace msprobe::server {

// Parts that the bodies of all receivers have.

// "2001-09-09T01:46:40.500Z", as RFC 3339 has it.
inline std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", time, absl::UTCTimeZone());
}

inline void WriteText(JsonWriter& json, std::string_view name, std::string_view value) {
  json.Name(name);
  json.Text(value);
}

}  // namespace msprobe::server
