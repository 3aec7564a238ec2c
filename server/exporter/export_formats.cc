#include "server/exporter/export_formats.h"

#include <vector>

#include "absl/strings/str_join.h"
#include "server/exporter/gradient_files.h"
#include "server/format/cat.h"

namespace msprobe::server {

ExportFormats ExportFormats::Standard() {
  ExportFormats formats;
  formats.Register("dump", BeginDump);
  formats.Register("vis", BeginVis);
  formats.Register("model-explorer", BeginModelExplorer);
  formats.Register("trend", BeginTrend);
  formats.Register("grad_probe", BeginGradients);
  return formats;
}

absl::StatusOr<ExportFormats::Begin> ExportFormats::Find(std::string_view name) const {
  const auto found = formats_.find(name.empty() ? "dump" : name);
  if (found != formats_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, begin] : formats_) names.push_back(known);
  return absl::InvalidArgumentError(
      Cat("there is no export format \"", name, "\"; there are ", absl::StrJoin(names, ", ")));
}

absl::Status RefuseDumpOptions(const ExportOptions& options, std::string_view format) {
  const char* const given = options.extended       ? "extended statistics"
                            : options.strict_json  ? "strict JSON"
                            : options.omit_tensors ? "leaving out tensors"
                                                   : nullptr;
  if (given == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat(given, " is for the format dump, and the format is ", format));
}

}  // namespace msprobe::server
