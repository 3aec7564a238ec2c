#include <optional>
#include <utility>

#include "server/query/analysis_context.h"
#include "server/query/opened_source.h"

namespace msprobe::server {
namespace {

absl::StatusOr<OpenedSource> OpenRun(const AnalysisContext& context, const std::string& run) {
  v1::Source source;
  source.set_run(run);
  return OpenedSource::Open(source, context);
}

}  // namespace

absl::StatusOr<LayerMap> MapLayers(const AnalysisContext& context, const LayerMapRequest& request,
                                   const std::function<bool()>& cancelled,
                                   const std::function<bool(size_t done, size_t total)>& tell) {
  auto target = OpenRun(context, request.run);
  if (!target.ok()) return target.status();
  std::optional<OpenedSource> golden;
  if (!request.golden.empty()) {
    auto opened = OpenRun(context, request.golden);
    if (!opened.ok()) return opened.status();
    golden.emplace(*std::move(opened));
  }
  return MapLayers(*target, golden ? &*golden : nullptr, request, context.threads, cancelled, tell);
}

}  // namespace msprobe::server
