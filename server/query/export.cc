#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_join.h"
#include "server/exporter/export_formats.h"
#include "server/exporter/file_sink.h"
#include "server/format/cat.h"
#include "server/query/analysis_context.h"
#include "server/query/export_steps.h"
#include "server/query/opened_source.h"
#include "server/query/query_context.h"

namespace msprobe::server {
namespace {

using Place = StepTables::Place;

bool IsRank(const Place& place, const v1::Rank& rank) {
  return place.second.first == rank.kind() && place.second.second == rank.number();
}

// Everything named must exist: a typing error must not look like an empty answer.
absl::Status CheckNamed(const v1::ExportRequest& request, const std::vector<Place>& places) {
  for (uint32_t step : request.steps()) {
    if (std::none_of(places.begin(), places.end(), [&](const Place& place) { return place.first == step; })) {
      return absl::NotFoundError(
          Cat("run \"", request.run(), "\" has no step ", step,
              places.empty() ? "; it has none" : Cat("; it has ", places.front().first, " to ", places.back().first)));
    }
  }
  for (const v1::Rank& rank : request.ranks()) {
    if (std::any_of(places.begin(), places.end(), [&](const Place& place) { return IsRank(place, rank); })) continue;
    std::vector<std::string> names;
    for (const Place& place : places) names.push_back(RankName(RankOfPlace(place)));
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return absl::NotFoundError(
        Cat("run \"", request.run(), "\" has no ", RankName(rank), "; it has ", absl::StrJoin(names, ", ")));
  }
  return absl::OkStatus();
}

std::vector<Place> NamedPlaces(const v1::ExportRequest& request, std::vector<Place> places) {
  std::erase_if(places, [&](const Place& place) {
    const auto is_step = [&](uint32_t step) { return step == place.first; };
    const auto is_rank = [&](const v1::Rank& rank) { return IsRank(place, rank); };
    return (request.steps_size() > 0 && std::none_of(request.steps().begin(), request.steps().end(), is_step)) ||
           (request.ranks_size() > 0 && std::none_of(request.ranks().begin(), request.ranks().end(), is_rank));
  });
  return places;
}

}  // namespace

absl::Status Export(const QueryContext& context, const v1::ExportRequest& request,
                    const std::function<bool()>& cancelled, const Send<v1::FileChunk>& send) {
  TableLayouts layouts;
  AnalysisContext opening;
  opening.store = context.store;
  opening.layouts = &layouts;
  opening.peers = context.peers;
  opening.missing = context.missing;
  v1::Source run;
  run.set_run(request.run());
  auto source = OpenedSource::Open(run, opening);
  if (!source.ok()) return source.status();
  if (absl::Status status = CheckNamed(request, source->places()); !status.ok()) return status;
  const std::vector<PlacePair> pairs = PairsOf(NamedPlaces(request, source->places()));

  auto begin = context.formats.Find(request.format());
  if (!begin.ok()) return begin.status();
  ExportOptions options;
  options.extended = request.extended();
  options.strict_json = request.strict_json();
  options.omit_tensors = request.omit_tensors();
  options.output_directory = request.output_directory();
  options.spool_directory = context.spool_directory;
  ChunkSink sink("", [&](const v1::FileChunk& chunk) { return send(chunk); });
  auto format = (*begin)(options, sink);
  if (!format.ok()) return format.status();
  const bool streams = !(*format)->reading();
  if (pairs.empty() && !streams) return absl::NotFoundError(Cat("run \"", request.run(), "\" has no steps"));
  const auto tell = [&](size_t /*steps_done*/) {
    context.metrics->Add(Metric::kExports, 1, {"ok"});
    return absl::OkStatus();
  };
  absl::Status status = ExportSteps(*source, nullptr, pairs, **format, cancelled, tell);
  if (!status.ok()) context.metrics->Add(Metric::kExports, 1, {"error"});
  return status.ok() ? (*format)->Finish() : status;
}

}  // namespace msprobe::server
