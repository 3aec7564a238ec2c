#include "server/control/agent_queues.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "server/format/storage/key.h"

namespace msprobe::server {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Seconds(1);

bool CanAnswer(const v1::Hello& hello) {
  const auto& known = hello.capabilities();
  return std::find(known.begin(), known.end(), "control") != known.end();
}

}  // namespace

void AgentQueues::Tick(absl::Time now) {
  {
    absl::MutexLock lock(&mu_);
    if (now - looked_ < kBetweenLooks) return;
    looked_ = now;
  }
  std::map<std::string, Asked> here;
  std::vector<std::shared_ptr<LiveSession>> due;
  {
    const std::vector<std::shared_ptr<LiveSession>> connected = sessions_->Connected();
    absl::MutexLock lock(&mu_);
    for (const std::shared_ptr<LiveSession>& session : connected) {
      const v1::Hello hello = session->row().hello();
      if (!CanAnswer(hello)) continue;
      Asked& asked = here[hello.session()];
      const auto before = asked_.find(hello.session());
      const RankOfRun rank(hello.run(), RankName(hello.rank()));
      if (before != asked_.end() && before->second.rank == rank) asked = before->second;
      asked.rank = rank;
      if (now - asked.last < kPeriod) continue;
      asked.last = now;
      due.push_back(session);
    }
    std::swap(asked_, here);
    for (const auto& [session, gone] : here) {
      const auto still = asked_.find(session);
      if (gone.shown && (still == asked_.end() || still->second.rank != gone.rank)) {
        metrics_->Remove(Metric::kAgentQueueBytes, {gone.rank.first, gone.rank.second});
      }
    }
  }
  v1::ControlCommand status;
  status.set_action(v1::ControlCommand::STATUS);
  // Numbered as RunControl numbers users' commands.
  status.set_id(static_cast<uint64_t>(absl::ToUnixMicros(absl::Now())));
  for (const std::shared_ptr<LiveSession>& session : due) session->Control(status);
}

void AgentQueues::Report(const std::string& session, const v1::ControlReport& report) {
  absl::MutexLock lock(&mu_);
  const auto asked = asked_.find(session);
  if (asked == asked_.end()) return;
  asked->second.shown = true;
  const RankOfRun& rank = asked->second.rank;
  metrics_->Set(Metric::kAgentQueueBytes, static_cast<double>(report.queue_bytes()), {rank.first, rank.second});
}

}  // namespace msprobe::server
