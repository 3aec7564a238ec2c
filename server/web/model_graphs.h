#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/analysis/table/step_tables.h"
#include "server/query/analysis_context.h"
#include "server/web/model_graph.h"

namespace msprobe::server {

// The steps that a rank has, or that both sides have, around one of them.
struct StepsAround {
  uint32_t steps = 0, first = 0, last = 0;
  std::optional<uint32_t> before, after;
};

// One step of one rank of a run, alone or beside another run.
struct StepGraphs {
  explicit StepGraphs(ModelGraph graph) : target(std::move(graph)) {}

  uint32_t step = 0;  // of the target
  ModelGraph target;
  std::optional<ModelGraph> golden;
  StepTables::Place place, golden_place;  // a process has another number on the golden side
  std::string blame;    // of the first divergence: "computation"; empty: the sides agree, or there is one
  std::string culprit;  // the tensor that is blamed

  const ModelGraph& side(bool of_golden) const { return of_golden && golden ? *golden : target; }
  size_t nodes() const { return target.graph().nodes().size() + (golden ? golden->graph().nodes().size() : 0); }
};

// The graphs that the page asked for last, so that opening a module, moving and searching read no step again.
// Threads: any. Two that ask for the same graph at once make it once.
class ModelGraphs {
 public:
  // Calls that are kept, over all graphs; the one used last stays in any case. About 250 bytes each.
  static constexpr size_t kMaxNodes = 600'000;
  // A graph is shown for this long before the store is asked whether the step has changed.
  static constexpr absl::Duration kFresh = absl::Seconds(5);

  explicit ModelGraphs(size_t max_nodes = kMaxNodes) : max_nodes_(max_nodes) {}

  struct Question {
    std::string run;
    std::string golden;             // empty: the run alone
    std::pair<int, uint32_t> rank;  // as in StepTables::Place
    std::optional<uint32_t> step;   // nothing: the first with NaN or infinity, else the first
    auto Key() const { return std::tie(run, golden, rank, step); }
  };

  struct Answer {
    std::shared_ptr<const StepGraphs> graphs;
    StepsAround around;
  };

  // anew: the store is asked whether the step has changed, however lately it was. Errors are those of opening and
  // comparing; InvalidArgument: the step has no modules. Cancelled.
  absl::StatusOr<Answer> Find(const AnalysisContext& context, const Question& question,
                              const std::function<bool()>& cancelled, bool anew = false);

  size_t nodes() const;  // that are kept

 private:
  struct Kept {
    Question question;
    std::string version;  // of the steps in the store; empty: unknown
    absl::Time checked;
    std::shared_ptr<const StepGraphs> graphs;  // null: it is being made
    StepsAround around;
  };

  // Its place, once nobody makes it; the end: it is not kept.
  absl::StatusOr<std::list<Kept>::iterator> Await(const Question& question, const std::function<bool()>& cancelled)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::list<Kept>::iterator FindKept(const Question& question) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Evict() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t max_nodes_;
  mutable absl::Mutex mu_;
  absl::CondVar made_;
  std::list<Kept> kept_ ABSL_GUARDED_BY(mu_);  // the latest first
};

}  // namespace msprobe::server
