#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// The parts of a full name; the reverse of FullName (server/format/storage/structure_summary.h).
struct RecordName {
  std::string name;  // without count and direction
  v1::RecordKind kind = v1::RECORD_KIND_UNSPECIFIED;
  v1::Direction direction = v1::DIRECTION_FORWARD;
  uint32_t count = 0;
  uint32_t pass = 0;
};

// Nothing for a name of none of the forms.
std::optional<RecordName> ParseRecordName(std::string_view full_name);

// "File <path>, line <n>, in <func>, \n <source line>" taken apart; a line of another form stands whole in `path`, with
// line 0 and no function.
v1::Frame ParseFrame(std::string_view text);

}  // namespace msprobe::server
