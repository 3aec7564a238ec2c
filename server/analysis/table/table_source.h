#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/analysis/compare/elementwise.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// One step of one rank to be compared, and a way to the contents of its tensors.
// Threads: any, once it is made.
class TableSource {
 public:
  virtual ~TableSource() = default;

  virtual const StepTable& table() const = 0;
  // To narrow it before it is compared.
  virtual StepTable& mutable_table() = 0;
  // The elements behind a row with a data_name. NotFound: the file or the payload is not there. InvalidArgument: it is
  // no tensor, and why.
  virtual absl::StatusOr<std::unique_ptr<TensorElements>> OpenTensor(const Row& row) const = 0;
};

// The files of one rank directory. Empty: there is none.
struct DumpFiles {
  std::string dump;  // dump.json or debug.json
  std::string stacks;
  std::string construct;
  std::string tensors;  // the directory dump_tensor_data
};

struct DumpReading {
  bool stacks = true;
  bool construct = true;  // Entry.parent
  bool calls = false;     // StepTable.calls, and Entry.parent
};

// InvalidArgument: "FILE: line 3, column 7: what is wrong". NotFound: there is no such file.
absl::StatusOr<std::unique_ptr<TableSource>> ReadDumpTable(const DumpFiles& files, const DumpReading& reading);

}  // namespace msprobe::server
