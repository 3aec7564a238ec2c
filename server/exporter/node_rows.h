#pragma once

#include <string>
#include <vector>

#include "server/analysis/compat/mindstudio_rows.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// The rows of one node as input_data and output_data of a graph database have them: a JSON object by row names, whose
// values are objects of texts ("Max": "0.5").
struct NodeRows {
  std::string inputs = "{}";  // and parameters, and gradients
  std::string outputs = "{}";
};

// Of an entry. `compared` are the rows of the same entry, in their order, or empty; their figures go beside the values.
// checksums: "md5" is shown, too. Reuses the memory of `out`.
void WriteNodeRows(const StepTable& table, const Entry& entry, bool checksums, const std::vector<TableRow>& compared,
                   StepTable::Mode mode, const StepTable* golden, NodeRows& out);

}  // namespace msprobe::server
