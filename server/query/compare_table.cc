#include <fnmatch.h>

#include <algorithm>

#include "server/analysis/compare/content_comparison.h"
#include "server/analysis/compare/train_infer.h"
#include "server/analysis/compat/mindstudio_table.h"
#include "server/format/cat.h"
#include "server/query/analysis_context.h"
#include "server/query/compared_rows.h"
#include "server/query/opened_source.h"

namespace msprobe::server {
namespace {

std::string_view ModeText(StepTable::Mode mode) {
  return mode == StepTable::Mode::kTensor     ? "tensors"
         : mode == StepTable::Mode::kChecksum ? "checksums (md5)"
                                              : "statistics";
}

// Rows of entries that the glob does not take are left out of both tables.
void Select(const std::string& glob, StepTable& table) {
  std::erase_if(table.entries,
                [&](const Entry& entry) { return fnmatch(glob.c_str(), std::string(entry.name).c_str(), 0) != 0; });
  std::vector<Row> rows;
  for (Entry& entry : table.entries) {
    const uint32_t first = entry.first_row;
    entry.first_row = static_cast<uint32_t>(rows.size());
    rows.insert(rows.end(), table.rows.begin() + first, table.rows.begin() + first + entry.rows);
  }
  table.rows = std::move(rows);
  table.layout = nullptr;
}

TrainingBackend BackendOf(const v1::CompareTableRequest& request) {
  switch (request.training_backend()) {
    case v1::CompareTableRequest::TRAINING_BACKEND_FSDP:
      return TrainingBackend::kFsdp;
    case v1::CompareTableRequest::TRAINING_BACKEND_MEGATRON:
      return TrainingBackend::kMegatron;
    default:
      return TrainingBackend::kNone;
  }
}

absl::Status SendTable(const AnalysisContext& context, const v1::CompareTableRequest& request, const PlacePair& pair,
                       const NameMapping& mapping, StepPair& steps, const std::function<bool()>& cancelled,
                       const Send<v1::TableChunk>& send) {
  const StepTable::Mode target_mode = steps.target->table().mode;
  const StepTable::Mode golden_mode = steps.golden->table().mode;
  if (steps.target->table().task == "structure" || steps.golden->table().task == "structure") {
    return absl::InvalidArgumentError("dumps of task structure have no numbers to compare");
  }
  if (target_mode != golden_mode) {
    return absl::InvalidArgumentError(Cat("the target has ", ModeText(target_mode), " and the golden side ",
                                          ModeText(golden_mode),
                                          ": mindstudio-probe's table needs the same of both; compare without it"));
  }
  if (!request.scope().name_glob().empty()) {
    Select(request.scope().name_glob(), steps.target->mutable_table());
    Select(request.scope().name_glob(), steps.golden->mutable_table());
  }
  const TrainingBackend backend = BackendOf(request);
  RowMatch match;
  if (backend != TrainingBackend::kNone) {
    if (target_mode == StepTable::Mode::kChecksum) {
      return absl::InvalidArgumentError(
          "these dumps have checksums (md5): training and inference are compared by statistics or tensors");
    }
    TrainInferSides sides = AlignTrainInfer(std::move(steps.target), std::move(steps.golden), backend);
    steps.target = std::move(sides.training);
    steps.golden = std::move(sides.inference);
    match = std::move(sides.match);
  } else {
    match = !mapping.empty() ? MatchByMapping(steps.target->table(), steps.golden->table(), mapping)
            : request.matching() == v1::MATCHING_FUZZY ? MatchFuzzily(steps.target->table(), steps.golden->table())
                                                       : MatchExactly(steps.target->table(), steps.golden->table());
  }
  MindstudioTable table;
  table.target = &steps.target->table();
  table.golden = &steps.golden->table();
  table.match = &match;
  table.mode = target_mode;
  table.threads = context.threads;
  table.check_dtypes = !mapping.ignores_dtypes() && backend == TrainingBackend::kNone;
  table.training_backend = backend;
  table.across_frameworks =
      steps.target->table().framework != "pytorch" && steps.golden->table().framework == "pytorch";
  std::vector<ContentResult> contents;
  if (target_mode == StepTable::Mode::kTensor) {
    ContentComparison options;
    options.threads = context.threads;
    options.cancelled = cancelled;
    auto compared = CompareContents(match, *steps.target, *steps.golden, options);
    if (!compared.ok()) return compared.status();
    contents = *std::move(compared);
    table.contents = &contents;
  }
  v1::TableChunk chunk;
  chunk.set_step(pair.target.first);
  *chunk.mutable_rank() = RankOfPlace(pair.target);
  chunk.set_debug(steps.target->table().debug);
  auto counts = WriteMindstudioCsv(table, [&](std::string& content) -> absl::Status {
    chunk.mutable_content()->swap(content);
    return send(chunk) ? absl::OkStatus() : PeerGone();
  });
  if (!counts.ok()) return counts.status();
  chunk.clear_content();
  chunk.set_last(true);
  chunk.set_rows(counts->rows);
  chunk.set_warnings(counts->warnings);
  chunk.set_errors(counts->errors);
  chunk.set_target_only(counts->target_only);
  return send(chunk) ? absl::OkStatus() : PeerGone();
}

}  // namespace

absl::Status CompareTable(const AnalysisContext& context, const v1::CompareTableRequest& request,
                          const std::function<bool()>& cancelled, const Send<v1::TableChunk>& send) {
  auto target = OpenedSource::Open(request.target(), context);
  if (!target.ok()) return target.status();
  auto golden = OpenedSource::Open(request.golden(), context);
  if (!golden.ok()) return golden.status();
  std::vector<v1::UnpairedStep> unpaired;
  auto pairs = PairPlaces(*target, *golden, request.scope(), unpaired);
  if (!pairs.ok()) return pairs.status();
  auto mapping = MappingOf(request.mapping());
  if (!mapping.ok()) return mapping.status();
  const bool layers = !mapping->layers.empty();
  for (const PlacePair& pair : *pairs) {
    if (cancelled()) return PeerGone();
    auto steps = ReadPair(*target, *golden, pair, {.stacks = true, .construct = layers},
                          {.stacks = layers, .construct = layers});
    if (!steps.ok()) return steps.status();
    absl::Status status = SendTable(context, request, pair, *mapping, *steps, cancelled, send);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
