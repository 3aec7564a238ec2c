#include "server/store/maintenance.h"

#include <rocksdb/options.h>
#include <rocksdb/utilities/checkpoint.h>

#include <filesystem>
#include <memory>

#include "server/format/cat.h"
#include "server/store/alarms.h"
#include "server/store/rocks.h"
#include "server/store/scalars.h"
#include "server/store/segments/segment_collection.h"

namespace msprobe::server {

absl::StatusOr<Maintenance::Deleted> Maintenance::DeleteRun(const std::string& name) {
  absl::MutexLock deletion(&payloads_->deletion_mutex());
  absl::MutexLock registry(&catalogue_->registry_mutex());
  absl::ReaderMutexLock tiling(&steps_->tiling_mutex());
  absl::MutexLock jobs(&job_rows_->mutex());
  auto run = catalogue_->FindRun(name);
  if (!run.ok()) return run.status();
  auto sessions = catalogue_->Sessions(run->number());
  if (!sessions.ok()) return sessions.status();

  ChangeSet changes;
  if (absl::Status status = catalogue_->AddRunDeletion(*run, *sessions, changes); !status.ok()) return status;
  auto row_bytes = steps_->AddRunDeletion(run->number(), changes);
  if (!row_bytes.ok()) return row_bytes.status();
  auto payload_bytes = payloads_->AddRunDeletion(run->number(), *sessions, changes);
  if (!payload_bytes.ok()) return payload_bytes.status();
  definitions_->AddRunDeletion(run->number(), changes);
  JobRows::AddRunDeletion(run->number(), changes);
  Scalars::AddRunDeletion(run->number(), changes);
  Alarms::AddRunDeletion(run->number(), changes);
  if (absl::Status status = database_->Write(changes); !status.ok()) return status;
  ++runs_deleted_;
  if (database_->options().on_run_deleted) database_->options().on_run_deleted(name);
  return Deleted{.row_bytes = *row_bytes, .payload_bytes = *payload_bytes};
}

absl::StatusOr<uint64_t> Maintenance::ReleaseStep(const storage::SessionRow& session, uint32_t step,
                                                  absl::FunctionRef<bool(std::string_view hash)> needed) {
  absl::MutexLock deletion(&payloads_->deletion_mutex());
  auto sessions = catalogue_->Sessions(session.run());
  if (!sessions.ok()) return sessions.status();
  for (const storage::SessionRow& each : *sessions) {
    if (!each.holds_payloads()) return 0;
  }
  ChangeSet changes;
  auto freed = payloads_->AddRelease(session, step, needed, changes);
  if (!freed.ok() || changes.empty()) return freed;
  if (absl::Status status = database_->Write(changes); !status.ok()) return status;
  bytes_released_ += *freed;
  return freed;
}

absl::Status Maintenance::Checkpoint(const std::string& directory) const {
  if (absl::Status status = database_->Writable(); !status.ok()) return status;
  std::error_code error;
  if (std::filesystem::exists(directory, error)) {
    return absl::AlreadyExistsError(Cat("cannot write a checkpoint to ", directory, ": it exists"));
  }
  std::filesystem::create_directories(directory, error);
  if (error) return absl::FailedPreconditionError(Cat("cannot make ", directory, ": ", error.message()));
  const Rocks& rocks = database_->rocks();
  absl::MutexLock collection(&collection_mutex_);
  rocksdb::Checkpoint* made = nullptr;
  rocksdb::Status status = rocksdb::Checkpoint::Create(rocks.db.get(), &made);
  if (!status.ok()) return FromRocks(status);
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  status = checkpoint->CreateCheckpoint(directory + "/store");
  if (!status.ok()) return FromRocks(status);
  // After the rows, so that what they refer to is there; what is there beyond that is garbage in the copy.
  return rocks.segments->LinkInto(directory + "/segments");
}

absl::Status Maintenance::CollectSegments() {
  absl::MutexLock collection(&collection_mutex_);
  return server::CollectSegments(*database_);
}

absl::Status Maintenance::ReclaimSpace() {
  if (absl::Status status = CollectSegments(); !status.ok()) return status;
  const Rocks& rocks = database_->rocks();
  for (rocksdb::ColumnFamilyHandle* family : rocks.handles) {
    rocksdb::CompactRangeOptions options;
    options.exclusive_manual_compaction = false;
    options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    rocksdb::Status status = rocks.db->CompactRange(options, family, nullptr, nullptr);
    if (!status.ok()) return FromRocks(status);
    // Now the blob files know how much of them is garbage; those that are nothing else are gone.
    uint64_t blobs = 0, garbage = 0;
    rocks.db->GetIntProperty(family, rocksdb::DB::Properties::kLiveBlobFileSize, &blobs);
    rocks.db->GetIntProperty(family, rocksdb::DB::Properties::kLiveBlobFileGarbageSize, &garbage);
    if (garbage == 0 || garbage < blobs / 2) continue;
    options.blob_garbage_collection_policy = rocksdb::BlobGarbageCollectionPolicy::kForce;
    options.blob_garbage_collection_age_cutoff = 1.0;
    status = rocks.db->CompactRange(options, family, nullptr, nullptr);
    if (!status.ok()) return FromRocks(status);
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
