#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/analysis/table/step_table.h"
#include "server/analysis/table/table_layout.h"
#include "server/analysis/table/tile_source.h"
#include "server/format/storage/storage.pb.h"

namespace msprobe::server {

// Reads a few tensors and numbers of many steps from tiles: the tiles that hold them, and no others.
//
// Takes only steps that are one pass and lie wholly in tiles; a step that it leaves out gives the same values when it
// is read whole. Threads: Read from any after Make. The source outlives it.
class TiledTrend {
 public:
  // `steps` are of one run. Takes the tensors whose names match the shell pattern.
  static absl::StatusOr<std::unique_ptr<TiledTrend>> Make(const TileSource& tiles,
                                                          const std::vector<TileSource::Step>& steps,
                                                          const std::string& name_glob);

  // Tensors of a part, which bounds the size of its table. A set with more has several parts.
  static constexpr size_t kMaxTensors = 256;

  // By step: whether a part has it.
  const std::vector<bool>& taken() const { return taken_; }

  // A part is some tensors of those steps of one session that share a set and a layout. Each step is one pass of the
  // set.
  struct Pass {
    uint32_t number = 0;  // in its set
    uint32_t token = 0;
    size_t step = 0;  // index into the steps that Make was given
  };
  size_t parts() const { return parts_.size(); }
  const std::vector<Pass>& passes(size_t part) const { return parts_[part].passes; }
  bool last_of_its_set(size_t part) const { return parts_[part].last; }
  // A tensor's place among all chosen ones of its step, and its record.
  size_t place(size_t part, size_t row) const { return parts_[part].choice->places[row]; }
  const Entry& entry(size_t part, size_t row) const { return *parts_[part].choice->entries[row]; }
  // Rows of the part's tensors: all of the first pass, in order, then all of the next.
  absl::StatusOr<StepTable> Read(size_t part) const;

 private:
  struct LeafPlace {
    uint32_t fragment = 0;
    uint32_t leaf = 0;  // within the fragment
    int32_t row = 0;    // among the chosen
  };
  // A fragment that is read whole, for its numbers, and where it begins in the layout.
  struct WholeFragment {
    uint32_t fragment = 0;
    size_t leaf = 0, leaves = 0;
    size_t integer = 0, integers = 0;
    size_t real = 0, reals = 0;
  };
  // The values to read from every pass with one layout: tensors, or arguments that are numbers.
  struct Choice {
    std::shared_ptr<const TableLayout> layout;
    std::vector<size_t> rows;           // of the layout
    std::vector<size_t> places;         // of each row, among all chosen ones of the step
    std::vector<const Entry*> entries;  // of each row
    std::vector<WholeFragment> fragments;
    std::vector<LeafPlace> leaves;
    std::vector<size_t> layout_leaves;  // of each of these: index into the layout's
    absl::Mutex mu;
    std::map<size_t, std::shared_ptr<const TableLayout>> repeated ABSL_GUARDED_BY(mu);  // by number of passes
  };
  struct Part {
    TileSource::Session session;
    uint32_t set = 0;
    std::shared_ptr<const storage::TileSetRow> row;
    Choice* choice = nullptr;
    bool last = true;  // of the parts with the same passes
    std::vector<Pass> passes;
  };

  using Choices = std::vector<std::unique_ptr<Choice>>;
  class Chooser;
  class PassReader;

  TiledTrend(const TileSource& tiles, const std::string& name_glob) : tiles_(tiles), name_glob_(name_glob) {}
  // `of`: indexes of the session's steps.
  absl::Status AddSession(const std::vector<TileSource::Step>& steps, const std::vector<size_t>& of);
  // `wanted`: by step number, index into `steps`.
  absl::Status AddSet(const std::vector<TileSource::Step>& steps, const TileSource::Session& session,
                      const absl::flat_hash_map<uint32_t, size_t>& wanted, uint32_t set,
                      const std::shared_ptr<const storage::TileSetRow>& row);
  absl::StatusOr<Choices> Choose(const StepKey& step) const;
  static std::shared_ptr<const TableLayout> Repeated(Choice& choice, size_t passes);

  const TileSource& tiles_;
  const std::string name_glob_;
  std::vector<bool> taken_;
  std::vector<Part> parts_;
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, Choices> choices_;  // by rank, epoch, layout
};

}  // namespace msprobe::server
