#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/core/record.h"

namespace msprobe::bench {

// The fragments of one step of a dump directory of mindstudio-probe. Names, nesting, dtypes, shapes, scalars, stacks
// and parents come from the dump; whoever replays the step chooses the numbers of its tensors.
//
// Immutable after Load. Threads: any.
class RecordedStep {
 public:
  struct Leaf {
    std::vector<int64_t> shape;
    bool is_integer = false;
    bool is_wide = false;
    bool is_parameter = false;  // its shape stays from step to step
  };
  struct Fragment {
    core::Structure structure;
    uint32_t count = 0;
    uint32_t flags = 0;
    std::vector<core::Frame> stack;  // innermost first; empty: none
    std::string parent;              // full name; empty: null
    std::vector<Leaf> leaves;
    std::vector<int64_t> integers;
    std::vector<double> floats;
    std::vector<uint8_t> booleans;
    std::vector<std::string> strings;
  };

  // `directory` holds dump.json, and stack.json and construct.json where the dump has them. Errors: NotFound;
  // InvalidArgument: the file is no dump.json.
  static absl::StatusOr<RecordedStep> Load(const std::string& directory);

  const std::vector<Fragment>& fragments() const { return fragments_; }
  uint64_t records() const { return records_; }
  uint64_t leaves() const { return leaves_; }

 private:
  std::vector<Fragment> fragments_;
  uint64_t records_ = 0;
  uint64_t leaves_ = 0;
};

}  // namespace msprobe::bench
