#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_join.h"
#include "server/exporter/export_formats.h"
#include "server/exporter/file_sink.h"
#include "server/format/cat.h"
#include "server/query/query_context.h"
#include "server/shards/shown_steps.h"

namespace msprobe::server {
namespace {

// Everything named must exist: a typing error must not look like an empty answer.
absl::Status CheckNamed(const v1::ExportRequest& request, const std::vector<ShownStep>& steps) {
  for (uint32_t step : request.steps()) {
    if (std::none_of(steps.begin(), steps.end(), [&](const ShownStep& s) { return s.key.step == step; })) {
      return absl::NotFoundError(Cat(
          "run \"", request.run(), "\" has no step ", step,
          steps.empty() ? "; it has none" : Cat("; it has ", steps.front().key.step, " to ", steps.back().key.step)));
    }
  }
  for (const v1::Rank& rank : request.ranks()) {
    const uint32_t code = RankCode(rank);
    if (std::any_of(steps.begin(), steps.end(), [&](const ShownStep& s) { return s.key.rank == code; })) continue;
    std::vector<std::string> names;
    for (const ShownStep& step : steps) names.push_back(RankName(RankOfCode(step.key.rank)));
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return absl::NotFoundError(
        Cat("run \"", request.run(), "\" has no ", RankName(rank), "; it has ", absl::StrJoin(names, ", ")));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Export(const QueryContext& context, const v1::ExportRequest& request, const Send<v1::FileChunk>& send) {
  auto view = RunView::Open(context.shards(), request.run());
  if (!view.ok()) return view.status();
  if (absl::Status status = CheckNamed(request, view->steps()); !status.ok()) return status;

  auto begin = context.formats.Find(request.format());
  if (!begin.ok()) return begin.status();
  ExportOptions options;
  options.extended = request.extended();
  options.strict_json = request.strict_json();
  options.omit_tensors = request.omit_tensors();
  options.output_directory = request.output_directory();
  ChunkSink sink("", [&](const v1::FileChunk& chunk) { return send(chunk); });
  const std::unique_ptr<StepsExport> format = (*begin)(options, sink);
  for (const ShownStep& step : view->steps()) {
    const auto named = std::find(request.steps().begin(), request.steps().end(), step.key.step);
    if (request.steps_size() > 0 && named == request.steps().end()) continue;
    if (request.ranks_size() > 0 && std::none_of(request.ranks().begin(), request.ranks().end(),
                                                 [&](const v1::Rank& r) { return RankCode(r) == step.key.rank; })) {
      continue;
    }
    auto reader = view->Records(step);
    if (!reader.ok()) return reader.status();
    const absl::Status status = format->Add(**reader);
    context.metrics->Add(Metric::kExports, 1, {status.ok() ? "ok" : "error"});
    if (!status.ok()) return status;
  }
  return format->Finish();
}

}  // namespace msprobe::server
