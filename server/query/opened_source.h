#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "msprobe/v1/analysis.pb.h"
#include "server/analysis/compare/place_pairs.h"
#include "server/analysis/table/step_tables.h"
#include "server/importer/dump_layout.h"
#include "server/query/analysis_context.h"
#include "server/query/entry_text.h"
#include "server/shards/run_view.h"
#include "server/stored/stored_tiles.h"

namespace msprobe::server {

// A run, over all of its shards, or a dump directory of this machine, opened for analysis.
// Constant after Open; threads: any. The context outlives it.
class OpenedSource final : public StepTables {
 public:
  // NotFound names the run or the directory.
  static absl::StatusOr<OpenedSource> Open(const v1::Source& source, const AnalysisContext& context);
  static absl::StatusOr<OpenedSource> OpenRun(const std::string& name, const AnalysisContext& context);

  const std::string& name() const override { return name_; }
  const std::vector<Place>& places() const override { return places_; }
  absl::StatusOr<std::unique_ptr<TableSource>> Read(const Place& place, const DumpReading& reading) const override;
  bool HasNonFinite(const Place& place) const override;
  std::optional<TileSource::Step> FindStored(const Place& place) const override;
  const TileSource* tiles() const override { return view_ == nullptr ? nullptr : &tiles_; }

  // Of a run; `place` is one of places(). Errors as RunView::Records.
  absl::StatusOr<std::unique_ptr<RecordSource>> Records(const Place& place) const;
  // `place` is one of places(). Errors as ReadEntryText and RunView::Records.
  absl::StatusOr<EntryText> ReadEntry(const Place& place, std::string_view name) const;

  // Of a directory. Null: it is a run.
  const DumpFiles* Files(const Place& place) const;

  // Of a run: sessions that have neither ended nor been lost.
  uint32_t open_sessions() const { return view_ == nullptr ? 0 : view_->open_sessions(); }
  enum class Completeness {
    kWhole,
    kOpen,        // more of it may come
    kNeverEnded,  // its session ended or was lost before the step did
    kLeftOut,     // it ended, and records of it were left out on the way
    kFileSaysSo,  // of a directory: a file INCOMPLETE lies there
  };
  Completeness CompletenessOf(const Place& place) const;
  bool LacksRecords(const Place& place) const { return CompletenessOf(place) != Completeness::kWhole; }
  bool IsOpen(const Place& place) const { return CompletenessOf(place) == Completeness::kOpen; }

 private:
  explicit OpenedSource(const AnalysisContext& context)
      : layouts_(context.layouts), tiles_(context.store, context.layouts) {}

  TableLayouts* layouts_;
  StoredTiles tiles_;
  std::string name_;
  std::vector<Place> places_;
  // Of a run.
  std::shared_ptr<const RunView> view_;
  std::map<Place, const ShownStep*> steps_;  // in view_
  // Of a directory.
  std::map<Place, DumpFiles> files_;
  std::set<Place> incomplete_;
};

v1::Rank RankOfPlace(const StepTables::Place& place);
// "rank 3", "process 4711".
std::string TextOfRank(const StepTables::Place& place);

}  // namespace msprobe::server
