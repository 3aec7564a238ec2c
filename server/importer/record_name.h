#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// The parts of a record's full name: "Functional.linear.12.backward" is the 12th call of Functional.linear, backward.
// FullName (server/format/storage/structure_summary.h) puts them together.
struct RecordName {
  std::string name;  // "Functional.linear"
  v1::RecordKind kind = v1::RECORD_KIND_UNSPECIFIED;
  v1::Direction direction = v1::DIRECTION_FORWARD;
  uint32_t count = 0;  // of the call, from 0
  uint32_t pass = 0;   // of several backward passes over one call, from 0, which names leave out
};

// Nothing: the name has none of the forms NAME.0.forward (an API), NAME.forward.0 (a module), NAME.parameters_grad.0
// and NAME.0.debug.
std::optional<RecordName> ParseRecordName(std::string_view full_name);

// Takes a line of stack.json apart: "File <path>, line <n>, in <func>, \n <source line>". A line of another form
// becomes the path as a whole, with line 0 and no function.
v1::Frame ParseFrame(std::string_view text);

}  // namespace msprobe::server
