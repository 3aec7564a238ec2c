#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/store/store.h"

namespace msprobe::server {

// The RecordSource over the store's rows. Holds the blocks of the step; records are decoded one at a time.
absl::StatusOr<std::unique_ptr<RecordSource>> OpenStoredRecords(const Store& store, const storage::RunRow& run,
                                                                const StepKey& key, const storage::StepRow& row);

// The blocks of a step of one session, in order of arrival.
absl::StatusOr<std::vector<std::shared_ptr<const v1::Block>>> ReadStoredBlocks(const Store& store, const StepKey& key);

// Innermost frame first. NotFound: the run has none of that id. DataLoss: it is something else.
absl::StatusOr<std::vector<v1::Frame>> StoredStack(const Store& store, uint32_t run, uint64_t id);

}  // namespace msprobe::server
