#include "server/store/store.h"

#include "server/store/rocks.h"

namespace msprobe::server {

absl::StatusOr<std::unique_ptr<Store>> Store::Open(StoreOptions options) {
  auto database = Database::Open(std::move(options));
  if (!database.ok()) return database.status();
  std::unique_ptr<Store> store(new Store(*std::move(database)));
  if (absl::Status status = store->catalogue_.Load(); !status.ok()) return status;
  return store;
}

// Callbacks that still wait for a sync may use any part.
Store::~Store() { database_->rocks().sync.reset(); }

}  // namespace msprobe::server
