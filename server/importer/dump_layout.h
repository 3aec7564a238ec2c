#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// The files of one step of one rank. An empty path: the step has no such file.
struct StepFiles {
  std::string directory;  // "run/step0/rank1", for messages; empty at the top
  std::string dump, stack, construct, debug;
  bool incomplete = false;                     // a file INCOMPLETE lies there
  std::map<std::string, std::string> tensors;  // file name -> path
};

// Steps of each rank, in order. A rank is (Rank.kind, Rank.number).
using DumpLayout = std::map<std::pair<int, uint32_t>, std::map<uint32_t, StepFiles>>;

// Finds the step and rank directories among the paths of a dump. Every file that no dump has adds a line to `warnings`.
// InvalidArgument: a step without dump.json and debug.json, or no such file at all; two directories for one step of one
// rank; an unsafe path; a number of a step or rank beyond what a run may have.
absl::StatusOr<DumpLayout> FindSteps(const std::vector<std::string>& paths, uint32_t default_step,
                                     const v1::Rank& default_rank, std::vector<std::string>& warnings);

}  // namespace msprobe::server
