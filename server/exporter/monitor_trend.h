#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/exporter/trend_export.h"
#include "server/format/monitor/monitor_files.h"

namespace msprobe::server {

// Writes what a training monitor recorded into a trend database at `path` (TrendDatabase), for ranks and steps that
// `wanted` picks. Reads the files once, and with options.micro_steps twice. `warn` as in MonitorFiles::ForEachRow.
// InvalidArgument: there is no such row.
absl::Status WriteMonitorTrend(const MonitorFiles& files, std::string path, const TrendOptions& options,
                               absl::FunctionRef<bool(uint32_t step, uint32_t rank)> wanted,
                               absl::FunctionRef<void(const std::string& warning)> warn);

}  // namespace msprobe::server
