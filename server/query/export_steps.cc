#include "server/query/export_steps.h"

#include <future>
#include <memory>
#include <optional>
#include <utility>

#include "server/query/query_context.h"
#include "server/query/rank_numbers.h"

namespace msprobe::server {

ExportedStep ExportedPlace(const OpenedSource& source, const StepTables::Place& place, uint32_t rank) {
  ExportedStep step;
  step.step = place.first;
  step.rank = rank;
  step.files = source.Files(place);
  step.source = source.name();
  return step;
}

std::vector<PlacePair> PairsOf(const std::vector<StepTables::Place>& places) {
  std::vector<PlacePair> pairs;
  for (const StepTables::Place& place : places) pairs.push_back({place, place});
  return pairs;
}

namespace {

absl::StatusOr<StepPair> ReadTables(const OpenedSource& target, const OpenedSource* golden, const PlacePair& pair,
                                    const DumpReading& reading) {
  if (golden != nullptr) {
    const bool texts = target.Files(pair.target) != nullptr || golden->Files(pair.golden) != nullptr;
    return ReadPair(target, *golden, pair, reading, reading, !texts);  // texts of one side at a time in memory
  }
  auto table = target.Read(pair.target, reading);
  if (!table.ok()) return table.status();
  return StepPair{*std::move(table), nullptr};
}

}  // namespace

absl::Status ExportSteps(const OpenedSource& target, const OpenedSource* golden, const std::vector<PlacePair>& pairs,
                         StepsExport& format, const std::function<bool()>& cancelled,
                         const std::function<absl::Status(size_t done)>& tell) {
  std::vector<StepTables::Place> shown;
  for (const PlacePair& pair : pairs) shown.push_back(pair.target);
  const RankNumbers ranks(shown);
  const std::optional<DumpReading> reading = format.reading();
  std::future<absl::StatusOr<StepPair>> next;
  const auto begin_reading = [&](size_t i) {
    if (!reading || i == pairs.size()) return;
    next = std::async(std::launch::async, [&, i] { return ReadTables(target, golden, pairs[i], *reading); });
  };
  begin_reading(0);
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (cancelled()) return PeerGone();
    ExportedStep ours = ExportedPlace(target, pairs[i].target, ranks.Of(pairs[i].target));
    ExportedStep theirs;
    StepPair tables;
    std::unique_ptr<RecordSource> records;
    if (reading) {
      auto read = next.get();
      if (!read.ok()) return read.status();
      tables = *std::move(read);
      begin_reading(i + 1);
      ours.table = tables.target.get();
      if (golden != nullptr) {
        theirs = ExportedPlace(*golden, pairs[i].golden, ours.rank);
        theirs.table = tables.golden.get();
      }
    } else {
      auto opened = target.Records(pairs[i].target);
      if (!opened.ok()) return opened.status();
      records = *std::move(opened);
      ours.records = records.get();
    }
    absl::Status status = format.Add(ours, theirs);
    if (status.ok()) status = tell(i + 1);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
