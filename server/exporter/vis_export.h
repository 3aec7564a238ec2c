#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/analysis/compare/content_comparison.h"
#include "server/analysis/compare/name_mapping.h"
#include "server/analysis/compat/mindstudio_nodes.h"
#include "server/analysis/divergence/overflow_levels.h"
#include "server/analysis/graph/communication_partners.h"
#include "server/analysis/graph/graph_match.h"
#include "server/analysis/graph/step_graph.h"
#include "server/exporter/exported_step.h"
#include "server/exporter/vis_database.h"

namespace msprobe::server {

struct VisOptions {
  bool overflow = false;  // marks calls by OverflowLevels
  bool fuzzy = false;     // MatchNodesFuzzily
  // EntriesOfLayers; an empty list matches by the modules' places alone. Fuzzy matching goes before it.
  std::optional<std::vector<std::pair<std::string, NameMapping::Names>>> layers;
  std::string layers_file;  // where they were read from, for messages; empty: nowhere
  ContentComparison content;
};

// How the tables of graphs are read.
inline constexpr DumpReading kGraphReading{.stacks = true, .construct = true, .calls = true};
// InvalidArgument: the step has no calls; says which file would have them. `warn`, which may be
// empty, hears that it has no stacks.
absl::Status CheckCalls(const ExportedStep& step, const std::function<void(const std::string& warning)>& warn);

// Which nodes belong together, by the options. `renamed` becomes true where the layer mapping changed anything.
// Without layers, known names of modules and APIs where the frameworks differ.
GraphMatch MatchGraphs(const VisOptions& options, const StepGraph& target, const StepTable& target_table,
                       const StepGraph& golden, const StepTable& golden_table, bool& renamed);
// What names all modules around a node of it grows with the square of the depth: Model Explorer's files, and the pairs
// of a graph database. InvalidArgument: modules are nested deeper than kMostLevels; says which side, how deep, and
// where.
constexpr size_t kMostLevels = 500;
absl::Status CheckDepth(const StepGraph& graph, std::string_view which);
// InvalidArgument: there is a layer mapping, and it renamed no module of any step.
absl::Status CheckRenamed(const VisOptions& options, bool renamed);
// 0 (pass), 0.5 (warning) or 1 (error) of a node and its partner, by the worst of its rows, which are given; nothing:
// it has none. `compared` has the pairs of entries by node.
std::optional<double> PrecisionOfNode(const StepGraph& graph, int32_t node, const MindstudioNodes& compared,
                                      std::vector<TableRow>& rows);

// Writes the graphs of steps, of one side or of two beside each other, into a graph database (VisDatabase).
//
// What the database says is what mindstudio-probe's graph_visualize says; docs/compatibility.md lists what differs.
// Threads: one.
class VisExport {
 public:
  static absl::StatusOr<std::unique_ptr<VisExport>> Begin(std::string path, VisOptions options);

  // A step of a rank, read by kGraphReading; each comes once. Either every step has a golden side or none has (empty).
  // InvalidArgument: the step has no calls, or the sides cannot be compared; says which side, and why.
  absl::Status Add(const ExportedStep& target, const ExportedStep& golden);
  // InvalidArgument: the layer mapping renamed no module of any step.
  absl::Status Finish();

 private:
  VisExport(std::unique_ptr<VisDatabase> database, VisOptions options)
      : database_(std::move(database)), options_(std::move(options)) {}

  const std::unique_ptr<VisDatabase> database_;
  const VisOptions options_;
  VisConfig config_;
  bool renamed_ = false;               // whether the layer mapping changed anything
  CommunicationPartners partners_[2];  // of the target, and of the golden side
};

}  // namespace msprobe::server
