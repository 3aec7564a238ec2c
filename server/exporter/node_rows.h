#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/analysis/compat/mindstudio_rows.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// The rows of one node as input_data and output_data of a graph database have them: a JSON object by row names, whose
// values are objects of texts ("Max": "0.5"). They are kept packed: control characters, which JSON never has as they
// are, stand for the keys, and for the node's name at the head of a row's.
struct NodeRows {
  std::string inputs;  // and parameters, and gradients
  std::string outputs;
};

// The name of a node in packed text.
inline constexpr char kOwnName = '\x01';

// An expression of SQLite that unpacks a column, where `name` is the column with the node's name. Text that is not
// packed stays what it is.
std::string UnpackedSql(std::string_view column, std::string_view name);

// Of an entry. `node` is the name of its node. `compared` are the rows of the same entry, in their order, or empty;
// their figures go beside the values. checksums: "md5" is shown, too. Reuses the memory of `out`.
void WriteNodeRows(const StepTable& table, std::string_view node, const Entry& entry, bool checksums,
                   const std::vector<TableRow>& compared, StepTable::Mode mode, const StepTable* golden, NodeRows& out);

}  // namespace msprobe::server
