#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/analysis/graph/parallel_layout.h"
#include "server/analysis/graph/step_graph.h"
#include "server/analysis/table/table_source.h"

namespace msprobe::server {

// A step of one rank, for as long as it is merged and the result is used.
struct RankGraph {
  uint32_t rank = 0;
  const StepTable* table = nullptr;
  const StepGraph* graph = nullptr;
};

// The graphs of several ranks as one: a graph of the whole model, and its values. Contents of tensors are not merged.
class MergedStep final : public TableSource {
 public:
  // The first of the ranks that it was made of.
  uint32_t rank() const { return rank_; }
  StepGraph& graph() { return *graph_; }
  // By node of the graph: which ranks' values it has, and how they were computed.
  const std::vector<std::vector<std::string>>& notes() const { return notes_; }

  const StepTable& table() const override { return table_; }
  StepTable& mutable_table() override { return table_; }
  // NotFound: always.
  absl::StatusOr<std::unique_ptr<TensorElements>> OpenTensor(const Row& row) const override;

 private:
  friend class RankMerge;
  explicit MergedStep(uint32_t rank) : rank_(rank) {}

  const uint32_t rank_;
  StepTable table_;
  std::optional<StepGraph> graph_;
  std::vector<std::vector<std::string>> notes_;
};

// Merges ranks by mindstudio-probe's rules, one result for each rank of data parallelism:
//   - ranks of a pipeline: a module that all have, with other inputs and other results, is another layer in each; they
//     come one after another and are numbered through. A module around them ends with the last rank's results. The
//     chunks of a virtual pipeline are joined (JoinChunks).
//   - ranks that share tensors: values that differ become their maximum, minimum, mean, and the root of the sum of
//     squared norms. A column- and a row-parallel linear layer are merged even where values are the same, and a matmul
//     whose result is reduced takes the reduced one.
//   - API calls outside of modules stay apart by rank, in one collection.
// Which ranks belong together is read from the communications; the layout says it where these do not.
//
// InvalidArgument: the layout is wrong, or names other ranks than there are.
absl::StatusOr<std::vector<std::unique_ptr<MergedStep>>> MergeRanks(const std::vector<RankGraph>& ranks,
                                                                    const ParallelLayout& layout);

}  // namespace msprobe::server
