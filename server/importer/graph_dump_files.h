#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/importer/dumped_call.h"
#include "server/importer/file_source.h"

namespace msprobe::server {

// What graphs of MindSpore dump themselves, seen as a dump in mindstudio-probe's form. The files of kernels (level L2)
//   rank_{R}/{net}/{graph}/{iteration}/{Op}.{scope}.{task}.{stream}.{time}.{input|output}.{i}.{format}.{dtype}.npy
//   rank_{R}/{net}/{graph}/{iteration}/statistic.csv
//   rank_{R}/execution_order/ms_execution_order_graph_{graph}.csv
// and those that operators in the graph write of its cells (level L0)
//   step{iteration}/rank{R}/dump_tensor_data/{name}_{dtype}_{id}.npy, by CellTensorFile
// become step{iteration}/rank{R}/dump.json and dump_tensor_data/, of cells with construct.json. Other files keep their
// paths, which no dump has.
//
// 1. A record is one launch of a kernel: "Kernel.{Op}.{scope}.{n}.forward", the n-th in its step. Each tensor of a
//    launch has a time of its own, so the n-th file of a tensor is the n-th launch's.
// 2. Graphs of a step follow each other by number. In a graph parameters come first, then the kernels that
//    execution_order lists, in its order, then others by time.
// 3. An operator that writes a tensor of a cell is a kernel too, with a row of its own in statistic.csv. That row is
// the
//    cell's: "Op Name" ends in the name of its file, dump_tensor_data/{name}, with '-' for '.'. Calls of cells are
//    arranged by CellCalls, and stand behind the kernels.
// 4. Max, Min, Mean and Norm are those of statistic.csv. A tensor without a row there has them computed from its file.
//
// Memory: the largest tensor, and the dump.json of each step that was opened. Threads: one at a time.
class GraphDumpFiles : public FileSource {
 public:
  // Whether these are the paths of such a dump.
  static bool Knows(const std::vector<std::string>& paths);

  // Borrows `files`. InvalidArgument names the file, the line and what is wrong there.
  static absl::StatusOr<std::unique_ptr<GraphDumpFiles>> Read(FileSource& files);

  std::vector<std::string> paths() const override;
  absl::StatusOr<std::unique_ptr<ByteSource>> Open(std::string_view path) override;

 private:
  struct Step {
    std::vector<DumpedCall> calls;
    std::string text;  // dump.json, once it was asked for
  };

  explicit GraphDumpFiles(FileSource& files) : files_(files) {}

  absl::StatusOr<std::string> TextOf(const Step& step);

  FileSource& files_;
  std::map<std::string, Step> steps_;              // by path of dump.json
  std::map<std::string, std::string> constructs_;  // path of construct.json -> its text
  std::map<std::string, std::string> tensors_;     // path here -> path in files_
  std::vector<std::string> others_;
};

}  // namespace msprobe::server
