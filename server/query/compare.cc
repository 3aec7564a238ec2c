#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/analysis/compare/comparison.h"
#include "server/query/analysis_context.h"
#include "server/query/analysis_request.h"
#include "server/query/compared_rows.h"
#include "server/query/opened_source.h"
#include "server/query/side_notes.h"

namespace msprobe::server {
namespace {

constexpr int kRowsAMessage = 500;

void FillTally(const VerdictTally& tally, v1::VerdictTally& out) {
  out.set_rows(tally.rows);
  for (uint64_t count : tally.by_verdict) out.add_by_verdict(count);
  out.set_worst_excess(tally.worst_excess);
  out.set_worst(tally.worst);
  out.set_first_difference(tally.first_difference);
}

void AddRollUp(v1::RollUp::Level level, const std::string& name, const StepTables::Place* place,
               const VerdictTally& tally, v1::RollUps& out) {
  v1::RollUp& added = *out.add_roll_ups();
  added.set_level(level);
  added.set_name(name);
  if (place != nullptr) {
    if (level != v1::RollUp::RANK) added.set_step(place->first);
    if (level != v1::RollUp::STEP) *added.mutable_rank() = RankOfPlace(*place);
  }
  FillTally(tally, *added.mutable_tally());
}

// Answers about one pair of steps.
class StepAnswer {
 public:
  StepAnswer(const v1::CompareRequest& request, const PlacePair& place, const StepPair& steps,
             const StepComparison& comparison, const Send<v1::CompareResponse>& send)
      : request_(request),
        place_(place),
        target_(steps.target->table()),
        golden_(steps.golden->table()),
        comparison_(comparison),
        send_(send) {}

  absl::Status Send() {
    if (absl::Status status = SendRows(); !status.ok()) return status;
    v1::CompareResponse response;
    v1::RollUps& roll_ups = *response.mutable_roll_ups();
    for (const auto& [name, tally] : comparison_.modules) {
      AddRollUp(v1::RollUp::MODULE, name, &place_.target, tally, roll_ups);
    }
    for (const auto& [name, tally] : comparison_.layers) {
      AddRollUp(v1::RollUp::LAYER, name, &place_.target, tally, roll_ups);
    }
    return send_(response) ? absl::OkStatus() : PeerGone();
  }

 private:
  absl::Status SendRows() {
    if (request_.rows() == v1::CompareRequest::NONE) return absl::OkStatus();
    std::vector<size_t> order;
    for (size_t i = 0; i < comparison_.rows.size(); ++i) {
      if (request_.rows() == v1::CompareRequest::ALL || IsDifference(comparison_.rows[i].verdict)) order.push_back(i);
    }
    if (request_.order() == v1::CompareRequest::SIGNIFICANCE) {
      SortBySignificance(comparison_.rows, order);
    }
    if (request_.limit() != 0 && order.size() > request_.limit()) order.resize(request_.limit());
    IndexEntries();
    v1::CompareResponse response;
    for (size_t i : order) {
      Fill(i, *response.mutable_tensors()->add_rows());
      if (response.tensors().rows_size() < kRowsAMessage) continue;
      if (!send_(response)) return PeerGone();
      response.Clear();
    }
    if (!response.has_tensors()) return absl::OkStatus();
    return send_(response) ? absl::OkStatus() : PeerGone();
  }

  void IndexEntries() {
    for (const auto& [table, entries] :
         {std::pair(&target_, &target_entries_), std::pair(&golden_, &golden_entries_)}) {
      entries->resize(table->rows.size());
      for (const Entry& entry : table->entries) {
        std::fill_n(entries->begin() + entry.first_row, entry.rows, &entry);
      }
    }
  }

  void Fill(size_t index, v1::ComparedTensor& out) const {
    const ComparedRow& row = comparison_.rows[index];
    const Entry& entry = row.target != kNoRow ? *target_entries_[static_cast<size_t>(row.target)]
                                              : *golden_entries_[static_cast<size_t>(row.golden)];
    FillComparedTensor(target_, golden_, entry, row, comparison_.contents, place_.target, out);
    out.set_order(index);
  }

  const v1::CompareRequest& request_;
  const PlacePair& place_;
  const StepTable& target_;
  const StepTable& golden_;
  const StepComparison& comparison_;
  const msprobe::server::Send<v1::CompareResponse>& send_;
  std::vector<const Entry*> target_entries_;
  std::vector<const Entry*> golden_entries_;
};

}  // namespace

absl::Status Compare(const AnalysisContext& context, const v1::CompareRequest& request,
                     const std::function<bool()>& cancelled, const Send<v1::CompareResponse>& send) {
  auto options = CompareOptionsOf(OptionsIn(request), request.scope().name_glob());
  if (!options.ok()) return options.status();
  options->content.threads = context.threads;
  options->content.cancelled = cancelled;
  auto target = OpenedSource::Open(request.target(), context);
  if (!target.ok()) return target.status();
  auto golden = OpenedSource::Open(request.golden(), context);
  if (!golden.ok()) return golden.status();
  std::vector<UnpairedPlace> unpaired;
  auto pairs = PairLayouts(*target, *golden, ScopeOf(request.scope()), options->across_layouts, unpaired);
  if (!pairs.ok()) return pairs.status();

  std::vector<std::string> notes = NotesOfMissingRecords(*target, *golden, *pairs);
  bool levels_told = false;
  const bool stacks = !options->mapping.layers.empty();
  std::map<std::pair<int, uint32_t>, VerdictTally> ranks;
  std::map<uint32_t, VerdictTally> steps_total;
  VerdictTally run;
  uint64_t done = 0;
  for (const LayoutPair& layouts : *pairs) {
    if (cancelled()) return PeerGone();
    const PlacePair pair = layouts.shown();
    auto steps = ReadLayouts(*target, *golden, layouts, {.stacks = stacks, .construct = true}, *options);
    if (!steps.ok()) return steps.status();
    if (std::string note = NoteOfLevels(steps->target->table(), steps->golden->table());
        !note.empty() && !std::exchange(levels_told, true)) {
      notes.push_back(std::move(note));
    }
    auto comparison = CompareStep(*steps->target, *steps->golden, *options);
    if (!comparison.ok()) return comparison.status();
    if (absl::Status status = StepAnswer(request, pair, *steps, *comparison, send).Send(); !status.ok()) return status;
    ranks[pair.target.second].Add(comparison->total);
    steps_total[pair.target.first].Add(comparison->total);
    run.Add(comparison->total);
    v1::CompareResponse progress;
    progress.mutable_progress()->set_steps_done(++done);
    progress.mutable_progress()->set_steps_total(pairs->size());
    if (!send(progress)) return PeerGone();
  }
  for (const UnpairedPlace& lonely : unpaired) {
    v1::CompareResponse response;
    *response.mutable_unpaired() = UnpairedMessage(lonely);
    if (!send(response)) return PeerGone();
  }
  v1::CompareResponse response;
  for (std::string& note : notes) {
    response.set_note(std::move(note));
    if (!send(response)) return PeerGone();
  }
  v1::RollUps& roll_ups = *response.mutable_roll_ups();
  for (const auto& [rank, tally] : ranks) {
    const StepTables::Place place{0, rank};
    AddRollUp(v1::RollUp::RANK, "", &place, tally, roll_ups);
  }
  for (const auto& [step, tally] : steps_total) {
    const StepTables::Place place{step, {}};
    AddRollUp(v1::RollUp::STEP, "", &place, tally, roll_ups);
  }
  AddRollUp(v1::RollUp::RUN, "", nullptr, run, roll_ups);
  return send(response) ? absl::OkStatus() : PeerGone();
}

}  // namespace msprobe::server
