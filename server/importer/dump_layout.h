#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// The files of one step of one rank; empty: there is none.
struct StepFiles {
  std::string directory;  // "run/step0/rank1", for messages; empty at the top
  std::string dump, stack, construct, debug;
  bool incomplete = false;                     // a file INCOMPLETE lies there
  std::map<std::string, std::string> tensors;  // file name -> path
};

// Steps of each rank, in order. A rank is (Rank.kind, Rank.number).
using DumpLayout = std::map<std::pair<int, uint32_t>, std::map<uint32_t, StepFiles>>;

// Finds the step and rank directories among paths. Adds a line to `warnings` for files that belong to none of the
// forms. InvalidArgument: no dump.json and no debug.json at all; two directories for one step and rank; stack.json
// without dump.json; an unsafe path.
absl::StatusOr<DumpLayout> FindSteps(const std::vector<std::string>& paths, uint32_t default_step,
                                     const v1::Rank& default_rank, std::vector<std::string>& warnings);

}  // namespace msprobe::server
