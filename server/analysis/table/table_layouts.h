#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/analysis/table/table_layout.h"

namespace msprobe::server {

// The layouts that were used last. Any thread.
class TableLayouts {
 public:
  // A row costs about 350 bytes: together about 100 MiB. The one used last stays, whatever its size.
  static constexpr size_t kMaxRows = 300'000;
  // For who reads a run's steps as they end: about 20 MiB.
  static constexpr size_t kWatchedRows = 60'000;

  explicit TableLayouts(size_t max_rows = kMaxRows) : max_rows_(max_rows) {}

  // Makes the layout where it is not here; callers that want the same one meanwhile wait for it.
  absl::StatusOr<std::shared_ptr<const TableLayout>> Get(
      const TableLayout::Key& key, absl::FunctionRef<absl::StatusOr<std::shared_ptr<const TableLayout>>()> make);

 private:
  using Kept = std::pair<TableLayout::Key, std::shared_ptr<const TableLayout>>;

  const size_t max_rows_;
  absl::Mutex mu_;
  std::list<Kept> kept_ ABSL_GUARDED_BY(mu_);  // used last: first
  absl::flat_hash_map<TableLayout::Key, std::list<Kept>::iterator> by_key_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<TableLayout::Key> being_made_ ABSL_GUARDED_BY(mu_);
  size_t rows_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace msprobe::server
