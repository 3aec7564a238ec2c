#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "server/format/storage/structure_summary.h"
#include "server/format/storage/value.h"
#include "server/ingest/session/events.h"
#include "server/store/change_set.h"

namespace msprobe::server {

// The changes that one batch would make. BatchStaging gathers them.
struct StagedBatch {
  struct Row {
    uint32_t step = 0, token = 0, block = 0;
    std::string value;
  };
  struct Fault {
    uint32_t step = 0, n = 0;
    v1::Marker::Fault fault;
  };

  storage::SessionRow session;
  std::map<uint32_t, storage::StepRow> steps;
  std::map<uint32_t, absl::flat_hash_set<uint64_t>> records;  // new ones
  std::set<uint32_t> discarded;
  std::vector<Row> rows;
  std::vector<Fault> faults;
  absl::flat_hash_map<uint64_t, std::unique_ptr<StructureSummary>> structures;
  absl::flat_hash_set<uint64_t> stacks;
  std::map<std::string, storage::PendingRow> pending;  // new or changed
  std::vector<std::string> wanted, stored;
  absl::flat_hash_set<std::string> referenced;
  std::vector<std::pair<uint32_t, v1::StepSummary::State>> finished;
  std::vector<uint32_t> export_requests;
  std::optional<std::pair<v1::Rank, v1::Rank>> rank_change;
  uint64_t new_records = 0, nan_tensors = 0, inf_tensors = 0;
  std::vector<ScalarPoint> scalars;
  std::vector<ResponseToken> responses;
  size_t scalar_names = 0;       // bytes, once for each point
  uint32_t scalar_rows = 0;      // of the session that are not in tiles then
  std::vector<uint64_t> series;  // whose names are new
  std::vector<v1::Marker::Gap> gaps;
  ChangeSet changes;
};

}  // namespace msprobe::server
