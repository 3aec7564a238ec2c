#include <optional>
#include <utility>

#include "server/query/analysis_context.h"
#include "server/query/opened_source.h"

namespace msprobe::server {

absl::StatusOr<LayerMap> MapLayers(const AnalysisContext& context, const LayerMapRequest& request,
                                   const std::function<bool()>& cancelled,
                                   const std::function<bool(size_t done, size_t total)>& tell) {
  auto target = OpenedSource::OpenRun(request.run, context);
  if (!target.ok()) return target.status();
  std::optional<OpenedSource> golden;
  if (!request.golden.empty()) {
    auto opened = OpenedSource::OpenRun(request.golden, context);
    if (!opened.ok()) return opened.status();
    golden.emplace(*std::move(opened));
  }
  return MapLayers(*target, golden ? &*golden : nullptr, request, context.threads, cancelled, tell);
}

}  // namespace msprobe::server
