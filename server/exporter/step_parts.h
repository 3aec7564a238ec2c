#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/record_source.h"

namespace msprobe::server {

// Where the parts of a dump may lie below its directory: all of it, or what MindSpore compiles and what it does not.
inline constexpr std::string_view kPartFolders[] = {"", "graph/", "pynative/"};

// One directory of a dump, and the records in it.
struct StepPart {
  std::string directory;  // "step0/rank0", "graph/step0/rank0"
  RecordSource* records;
  std::unique_ptr<RecordSource> filtered;  // what `records` points at, where it is not the step itself
};

// The directories in which mindstudio-probe has this step: two where its session has compiled cells. The step outlives
// the parts.
std::vector<StepPart> PartsOf(RecordSource& step);

// The directory that a program is told of: "step0", "pynative/step0".
std::string ToldDirectory(const v1::CaptureSettings& settings, uint32_t step);

}  // namespace msprobe::server
