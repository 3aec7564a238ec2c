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
#include "server/format/storage/storage.pb.h"
#include "server/query/analysis_context.h"

namespace msprobe::server {

// A few tensors and numbers of many steps that are tiles: what is read are the tiles those tensors are in, and of these
// nothing else.
//
// Only steps that are one pass and wholly tiles are taken; the others are read step by step, which gives the same.
// Threads: Read from any after Make. The context outlives it.
class TiledTrend {
 public:
  struct Step {
    StepKey key;
    uint32_t blocks = 0;  // StepRow.next_block: how many the step has
  };
  // `steps` are of one run. Tensors are those whose name the glob takes.
  static absl::StatusOr<std::unique_ptr<TiledTrend>> Make(const AnalysisContext& context,
                                                          const std::vector<Step>& steps, const std::string& name_glob);

  // Tensors of a part: with more, its table would be large. Of a set there are as many parts as it takes.
  static constexpr size_t kMaxTensors = 256;

  // Of each step, whether it is in some part.
  const std::vector<bool>& taken() const { return taken_; }

  // Steps of one session and one set with one layout, and some of their tensors.
  struct Pass {
    uint32_t number = 0;  // in its set
    uint32_t token = 0;
    size_t step = 0;  // index into the steps given
  };
  size_t parts() const { return parts_.size(); }
  const std::vector<Pass>& passes(size_t part) const { return parts_[part].passes; }
  bool last_of_its_set(size_t part) const { return parts_[part].last; }
  // Of one of its tensors: its place among all chosen ones, and its record.
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
  // A fragment that is read whole for its numbers, and where it begins in the layout.
  struct WholeFragment {
    uint32_t fragment = 0;
    size_t leaf = 0, leaves = 0;
    size_t integer = 0, integers = 0;
    size_t real = 0, reals = 0;
  };
  // What is chosen of all passes of one layout: tensors, or arguments that are numbers.
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
    StepKey session;  // its step is that of the first pass
    uint32_t set = 0;
    std::shared_ptr<const storage::TileSetRow> row;
    Choice* choice = nullptr;
    bool last = true;  // of those with the same passes
    std::vector<Pass> passes;
  };

  explicit TiledTrend(const AnalysisContext& context) : context_(context) {}
  absl::Status AddSession(const std::vector<Step>& steps, const std::vector<size_t>& of, const std::string& name_glob);
  using Choices = std::vector<std::unique_ptr<Choice>>;

  absl::StatusOr<Choices> Choose(const StepKey& step, const std::string& name_glob) const;
  static std::shared_ptr<const TableLayout> Repeated(Choice& choice, size_t passes);

  const AnalysisContext& context_;
  std::vector<bool> taken_;
  std::vector<Part> parts_;
  std::map<std::tuple<uint32_t, uint32_t, uint64_t>, Choices> choices_;  // by rank, epoch, layout
};

}  // namespace msprobe::server
