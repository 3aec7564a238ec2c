#pragma once

#include <cstdint>
#include <string>

#include "msprobe/v1/record.pb.h"
#include "server/exporter/export_formats.h"

namespace msprobe::server {

// Where the files of task grad_probe lie, below its dump_path, as mindstudio-probe has them:
//   rank{R}/grad_summary_{step}.csv         a line for each gradient
//   rank{R}/step{step}/{parameter}.npy      bools: which elements are above 0
// A process without a rank is rank 0.
std::string GradientDirectory(const v1::Rank& rank);
std::string GradientSummaryPath(uint32_t step, const v1::Rank& rank);

// The export format "grad_probe", of steps of that task. InvalidArgument: another one.
absl::StatusOr<std::unique_ptr<StepsExport>> BeginGradients(const ExportOptions& options, FileSink& sink);

}  // namespace msprobe::server
