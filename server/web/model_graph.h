#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/analysis/compare/comparison.h"
#include "server/analysis/divergence/overflow_levels.h"
#include "server/analysis/graph/call_edges.h"
#include "server/analysis/graph/graph_match.h"
#include "server/analysis/graph/graph_picture.h"
#include "server/analysis/graph/step_graph.h"
#include "server/analysis/table/statistic.h"
#include "server/analysis/table/table_source.h"

namespace msprobe::server {

// The calls of one step of one rank, with what the page's graph shows of each. It keeps no table: about 250 bytes a
// call.
// Threads: any, once it is made and compared.
class ModelGraph {
 public:
  // A call with what it holds.
  struct Facts {
    OverflowLevel level = OverflowLevel::kNone;
    OverflowLevel level_inside = OverflowLevel::kNone;  // the worst of it and what it holds
    std::optional<Verdict> verdict;                     // the worst of its rows; nothing: it has none
    std::optional<Verdict> verdict_inside;
    int32_t partner = -1;  // the other side's node
    uint32_t inside = 0;   // calls that it holds, however deep
    uint32_t tensor = 0;   // ModelGraph::TensorOf
  };
  // From fine to where the trouble began.
  enum class Mark : uint8_t { kFine, kSome, kBad, kFirst };

  // InvalidArgument: the step has no calls, or more than kMaxNodes.
  static absl::StatusOr<ModelGraph> Of(const StepTable& table);

  static constexpr size_t kMaxNodes = 2'000'000;

  const StepGraph& graph() const { return *graph_; }
  const CallEdges& edges() const { return *edges_; }
  const Facts& facts(int32_t node) const { return facts_[static_cast<size_t>(node)]; }
  // The node where the trouble began: where it parted from the other side, else where NaN or infinity began. -1: none.
  int32_t first() const { return first_; }
  bool compared() const { return compared_; }

  // Of the call and what it holds; kFirst for first() alone.
  Mark MarkOf(int32_t node) const;
  // Whether both ends of an edge are bad, and the first is not before where the trouble began.
  bool OnPath(int32_t from, int32_t to) const;

  // The value farthest from 0 among the call's outputs, or its inputs if it has no others; NaN goes before infinity,
  // and that before numbers. Nothing: it was not captured.
  std::optional<float> ValueOf(int32_t node, Statistic statistic) const;
  // The 1st and 99th percentile of the magnitudes of all calls, 0 left out. Nothing: there is none.
  std::optional<std::pair<float, float>> RangeOf(Statistic statistic) const;
  // The name of its first output tensor without the call's, ".output.0". Empty: it has no tensor.
  std::string_view TensorOf(int32_t node) const { return tensors_[facts(node).tensor]; }

  // What the page calls a module: of its name alone, so that it is the same in every step, on both sides and while the
  // step grows. 0: the node holds nothing.
  uint32_t KeyOf(int32_t node) const;
  // The modules of a key: one, or, rarely, several.
  std::vector<int32_t> ModulesOf(uint32_t key) const;

  // The picture with these nodes open. The last few are kept.
  std::shared_ptr<const GraphPicture> PictureOf(const std::set<int32_t>& open) const;

  // Fills in what comparing two sides says. `golden_first` and `first`: entries of the first divergence; -1: none.
  static void Compare(const StepTable& target, ModelGraph& ours, const StepTable& golden, ModelGraph& theirs,
                      const StepComparison& comparison, int32_t first, int32_t golden_first);

 private:
  static constexpr size_t kStatisticsOf = kStatistics;
  static constexpr size_t kPictures = 4;

  struct Pictures {
    absl::Mutex mu;
    // By what is open; the latest first.
    std::vector<std::pair<std::set<int32_t>, std::shared_ptr<const GraphPicture>>> made ABSL_GUARDED_BY(mu);
  };

  ModelGraph() : pictures_(std::make_unique<Pictures>()) {}

  void AddStatistics(const StepTable& table);
  void AddLevels(const StepTable& table);
  void AddVerdicts(const StepTable& table, const std::vector<std::optional<Verdict>>& by_row);
  void SetFirst(int32_t entry);
  // Parents take the worst of what they hold.
  void Gather();

  TextArena arena_;
  std::optional<StepGraph> graph_;
  std::optional<CallEdges> edges_;
  std::vector<Facts> facts_;                              // by node
  std::vector<uint32_t> ended_;                           // by node: its place in StepGraph::order()
  std::vector<std::array<float, kStatisticsOf>> values_;  // by node
  std::vector<uint16_t> known_;                           // by node: bits, which of the values were captured
  std::vector<std::string> tensors_;
  std::vector<std::pair<uint32_t, int32_t>> modules_;  // key and node
  int32_t first_ = -1;
  bool compared_ = false;
  std::unique_ptr<Pictures> pictures_;
};

}  // namespace msprobe::server
