#include "server/analysis/table/table_layouts.h"

namespace msprobe::server {

absl::StatusOr<std::shared_ptr<const TableLayout>> TableLayouts::Get(
    const TableLayout::Key& key, absl::FunctionRef<absl::StatusOr<std::shared_ptr<const TableLayout>>()> make) {
  {
    absl::MutexLock lock(&mu_);
    const auto made = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !being_made_.contains(key); };
    mu_.Await(absl::Condition(&made));
    if (const auto found = by_key_.find(key); found != by_key_.end()) {
      kept_.splice(kept_.begin(), kept_, found->second);
      return found->second->second;
    }
    being_made_.insert(key);
  }
  auto layout = make();
  absl::MutexLock lock(&mu_);
  being_made_.erase(key);
  if (!layout.ok()) return layout;
  kept_.emplace_front(key, *layout);
  by_key_[key] = kept_.begin();
  rows_ += (*layout)->table.rows.size();
  while (rows_ > max_rows_ && kept_.size() > 1) {
    rows_ -= kept_.back().second->table.rows.size();
    by_key_.erase(kept_.back().first);
    kept_.pop_back();
  }
  return layout;
}

}  // namespace msprobe::server
