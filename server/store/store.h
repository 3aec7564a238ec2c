#pragma once

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/store/catalogue.h"
#include "server/store/database.h"
#include "server/store/definitions.h"
#include "server/store/job_rows.h"
#include "server/store/maintenance.h"
#include "server/store/payloads.h"
#include "server/store/scalars.h"
#include "server/store/steps.h"
#include "server/store/store_options.h"

namespace msprobe::server {

// Everything the server keeps. The store owns one database and hands out the parts that know what lies in it:
//
//   catalogue()    runs and sessions
//   definitions()  structures and stacks
//   steps()        steps and their blocks
//   scalars()      what programs logged
//   payloads()     tensors' contents
//   job_rows()     the work queue's rows
//   maintenance()  what is done with the whole: deleting runs, getting disk space back, checkpoints
//   database()     keys and bytes: one atomic write for changes of any of the parts, durability, the disk
//
// A part that is to be changed adds to a ChangeSet, and Database::Write makes the changes of all parts at once. Nothing
// outside server/store includes RocksDB.
//
// Threads: every method from any thread.
// Locks are taken in this order: Payloads::deletion_mutex, Catalogue::registry_mutex, Steps::tiling_mutex,
// JobRows::mutex.
class Store {
 public:
  // Errors as Database::Open and Catalogue::Load.
  static absl::StatusOr<std::unique_ptr<Store>> Open(StoreOptions options);
  // Tells whoever waits for a sync, then closes.
  ~Store();

  Database& database() { return *database_; }
  const Database& database() const { return *database_; }
  Catalogue& catalogue() { return catalogue_; }
  const Catalogue& catalogue() const { return catalogue_; }
  const Definitions& definitions() const { return definitions_; }
  Steps& steps() { return steps_; }
  const Steps& steps() const { return steps_; }
  const Scalars& scalars() const { return scalars_; }
  const Payloads& payloads() const { return payloads_; }
  JobRows& job_rows() { return job_rows_; }
  Maintenance& maintenance() { return maintenance_; }
  const Maintenance& maintenance() const { return maintenance_; }

  absl::Time Now() const { return database_->Now(); }

 private:
  explicit Store(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  const std::unique_ptr<Database> database_;
  Catalogue catalogue_{database_.get()};
  Definitions definitions_{database_.get()};
  Payloads payloads_{database_.get()};
  JobRows job_rows_{database_.get()};
  Steps steps_{database_.get(), &catalogue_, &definitions_, &payloads_};
  Maintenance maintenance_{database_.get(), &catalogue_, &definitions_, &steps_, &payloads_, &job_rows_};
  Scalars scalars_{database_.get()};
};

}  // namespace msprobe::server
