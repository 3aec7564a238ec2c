#include "server/jobs/live_job.h"

namespace msprobe::server {

uint32_t LiveJob::waiting() const {
  return progress.items() - progress.fresh() + static_cast<uint32_t>(returned.size());
}

v1::Job LiveJob::Describe() const {
  v1::Job job;
  job.set_job(row.job());
  job.set_run(row.run_name());
  job.set_kind(row.kind());
  job.set_title(row.title());
  job.set_state(progress.cancelled() ? v1::Job::CANCELLED
                : ended()            ? v1::Job::FINISHED
                : progress.sealed()  ? v1::Job::SEALED
                                     : v1::Job::OPEN);
  job.set_created_unix_us(row.created_unix_us());
  job.set_ended_unix_us(progress.ended_unix_us());
  job.set_created_by(row.created_by());
  *job.mutable_limits() = row.limits();
  job.set_items(progress.items());
  job.set_waiting(ended() ? 0 : waiting());
  job.set_leased(leased);
  job.set_done(progress.done());
  job.set_failed(progress.failed());
  job.set_crashed(progress.crashed());
  job.set_attempts_lost(progress.attempts_lost());
  return job;
}

std::string LiveJob::Key(MetaSpace space) const { return JobKey(space, row.run(), row.job()); }
std::string LiveJob::Key(MetaSpace space, uint32_t part) const { return JobPartKey(space, row.run(), row.job(), part); }

void AddResult(const LiveJob& job, v1::ItemResult result, uint64_t lease, storage::JobProgressRow& progress,
               ChangeSet& changes) {
  const uint32_t order = Results(progress);
  const auto item = static_cast<uint32_t>(result.item());
  result.set_order(order);
  changes.PutMeta(job.Key(MetaSpace::kJobResult, order), result);
  changes.Put(Family::kMeta, job.Key(MetaSpace::kJobResultOf, item),
              JobResultPlace{.order = order, .lease = lease}.Encode());
  switch (result.outcome()) {
    case v1::OUTCOME_DONE:
      progress.set_done(progress.done() + 1);
      break;
    case v1::OUTCOME_FAILED:
      progress.set_failed(progress.failed() + 1);
      break;
    default:
      progress.set_crashed(progress.crashed() + 1);
  }
}

void AddProgress(const LiveJob& job, int64_t now_unix_us, storage::JobProgressRow& progress, ChangeSet& changes) {
  if (progress.sealed() && progress.ended_unix_us() == 0 && Results(progress) == progress.items()) {
    progress.set_ended_unix_us(now_unix_us);
  }
  changes.PutMeta(job.Key(MetaSpace::kJobProgress), progress);
}

}  // namespace msprobe::server
