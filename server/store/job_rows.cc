#include "server/store/job_rows.h"

#include "server/format/cat.h"
#include "server/format/storage/key.h"

namespace msprobe::server {
namespace {

constexpr MetaSpace kSpaces[] = {MetaSpace::kJob,        MetaSpace::kJobProgress, MetaSpace::kJobItem,
                                 MetaSpace::kJobLease,   MetaSpace::kJobReturned, MetaSpace::kJobResult,
                                 MetaSpace::kJobResultOf};

}  // namespace

absl::Status JobRows::Write(uint32_t run, const ChangeSet& changes) {
  absl::ReaderMutexLock lock(&mutex_);
  auto row = database_->Get(Family::kMeta, RunKey(run));
  if (!row.ok()) return row.status();
  if (!row->has_value()) return absl::NotFoundError(Cat("run ", run, " has been deleted, and its jobs with it"));
  return database_->Write(changes);
}

void JobRows::AddRunDeletion(uint32_t run, ChangeSet& changes) {
  for (MetaSpace space : kSpaces) changes.DeletePrefix(Family::kMeta, MetaPrefix(space, run));
}

void JobRows::AddJobDeletion(uint32_t run, uint32_t job, ChangeSet& changes) {
  for (MetaSpace space : kSpaces) changes.DeletePrefix(Family::kMeta, JobKey(space, run, job));
}

}  // namespace msprobe::server
