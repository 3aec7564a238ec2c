#pragma once

#include <cstdint>
#include <string>

#include "server/analysis/graph/rank_merge.h"
#include "server/analysis/table/table_source.h"
#include "server/store/record_source.h"

namespace msprobe::server {

// One step of one rank as an export takes it: its records or its table, as StepsExport::reading() says. All of it is
// borrowed.
struct ExportedStep {
  uint32_t step = 0;
  uint32_t rank = 0;  // a process that never had one has a number after the last rank's
  RecordSource* records = nullptr;
  const TableSource* table = nullptr;
  MergedStep* merged = nullptr;      // the same as `table`, if it was made of several ranks
  const DumpFiles* files = nullptr;  // of a dump directory; null: of a run
  std::string source = {};           // the run or the path, for messages

  bool empty() const { return records == nullptr && table == nullptr; }
  // The directory of its tensors' files; empty: there is none.
  std::string tensor_directory() const { return files == nullptr ? std::string() : files->tensors; }
};

}  // namespace msprobe::server
