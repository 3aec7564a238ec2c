// What an operator does with a whole store: checkpoints, pins, and getting disk space back.

#include <rocksdb/options.h>
#include <rocksdb/utilities/checkpoint.h>

#include <filesystem>

#include "server/format/cat.h"
#include "server/store/database.h"
#include "server/store/store.h"

namespace msprobe::server {

absl::Status Store::Checkpoint(const std::string& directory) const {
  if (absl::Status status = Writable(); !status.ok()) return status;
  std::error_code error;
  if (std::filesystem::exists(directory, error)) {
    return absl::AlreadyExistsError(Cat("cannot write a checkpoint to ", directory, ": it exists"));
  }
  std::filesystem::create_directories(directory, error);
  if (error) return absl::FailedPreconditionError(Cat("cannot make ", directory, ": ", error.message()));
  absl::MutexLock collection(&collection_mutex_);
  rocksdb::Checkpoint* made = nullptr;
  rocksdb::Status status = rocksdb::Checkpoint::Create(database_->db.get(), &made);
  if (!status.ok()) return FromRocks(status);
  const std::unique_ptr<rocksdb::Checkpoint> checkpoint(made);
  status = checkpoint->CreateCheckpoint(directory + "/store");
  if (!status.ok()) return FromRocks(status);
  // After the rows, so that what they refer to is there; what is there beyond that is garbage of the copy's.
  return database_->segments->LinkInto(directory + "/segments");
}

absl::Status Store::SetPinned(const std::string& name, bool pinned) {
  absl::MutexLock registry(&registry_mutex_);
  auto run = FindRun(name);
  if (!run.ok()) return run.status();
  run->set_pinned(pinned);
  ChangeSet changes;
  changes.PutMeta(RunKey(run->number()), *run);
  return Write(changes);
}

absl::Status Store::NoteControl(const std::string& name, const v1::ControlNote& note) {
  constexpr int kMaxNotes = 100;
  absl::MutexLock registry(&registry_mutex_);
  auto run = FindRun(name);
  if (!run.ok()) return run.status();
  *run->add_control_notes() = note;
  const int surplus = run->control_notes_size() - kMaxNotes;
  if (surplus > 0) run->mutable_control_notes()->DeleteSubrange(0, surplus);
  ChangeSet changes;
  changes.PutMeta(RunKey(run->number()), *run);
  return Write(changes);
}

absl::Status Store::ReclaimSpace() {
  if (absl::Status status = CollectSegments(); !status.ok()) return status;
  for (rocksdb::ColumnFamilyHandle* family : database_->handles) {
    rocksdb::CompactRangeOptions options;
    options.exclusive_manual_compaction = false;
    options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
    rocksdb::Status status = database_->db->CompactRange(options, family, nullptr, nullptr);
    if (!status.ok()) return FromRocks(status);
    // Now the blob files know how much of them is garbage; those that are nothing else are gone.
    uint64_t blobs = 0, garbage = 0;
    database_->db->GetIntProperty(family, rocksdb::DB::Properties::kLiveBlobFileSize, &blobs);
    database_->db->GetIntProperty(family, rocksdb::DB::Properties::kLiveBlobFileGarbageSize, &garbage);
    if (garbage == 0 || garbage < blobs / 2) continue;
    options.blob_garbage_collection_policy = rocksdb::BlobGarbageCollectionPolicy::kForce;
    options.blob_garbage_collection_age_cutoff = 1.0;
    status = database_->db->CompactRange(options, family, nullptr, nullptr);
    if (!status.ok()) return FromRocks(status);
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
