#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/exporter/vis_export.h"

namespace msprobe::server {

// Writes the graphs of steps as files of Model Explorer, of one side or of two beside each other:
//
//   target.json, golden.json         graphs, named "target step0 rank0": a node for each call, in the namespace of the
//                                    modules around it; an edge says that a call came after its neighbour
//   node_data_{what}.json            a value for each node, of every graph: statistics of its results; the overflow
//                                    level, if asked for; of two sides the verdict and each metric
//   mapping_step{S}_rank{R}.json     of two sides: which nodes and layers belong together, for synchronised navigation
//
// A module that calls others is a layer, and a node in it that stands for its own record. Of numbers that JSON does not
// have, NaN and infinities, nodes have no data; their attributes have the words.
// Memory: one step. Threads: one. Errors name the file: ResourceExhausted, the disk takes no more.
class ModelExplorerExport {
 public:
  // The directory must exist.
  static absl::StatusOr<std::unique_ptr<ModelExplorerExport>> Begin(std::string directory, VisOptions options);

  // As VisExport::Add; ranks are not merged.
  absl::Status Add(const ExportedStep& target, const ExportedStep& golden);
  // As VisExport::Finish.
  absl::Status Finish();

  // Those that Finish left in the directory, in order of their names.
  std::vector<std::string> files() const;

  // Opens a file, or goes on with it. `head`: its begin; `item`: the next of what stands in it, between commas.
  absl::Status Append(const std::string& name, std::string_view head, std::string_view tail, std::string_view item);

 private:
  struct File {
    std::ofstream stream;
    std::string tail;
  };

  ModelExplorerExport(std::string directory, VisOptions options)
      : directory_(std::move(directory)), options_(std::move(options)) {}

  const std::string directory_;
  const VisOptions options_;
  std::map<std::string, File> files_;
  bool renamed_ = false;
};

}  // namespace msprobe::server
