#include "server/store/session_order.h"

#include <utility>

namespace msprobe::server {

bool BeganLater(const storage::SessionRow& a, const storage::SessionRow& b) {
  const v1::Hello &mine = a.hello(), &other = b.hello();
  const bool one_clock = !mine.boot_id().empty() && mine.boot_id() == other.boot_id() &&
                         mine.process_start_ticks() != 0 && other.process_start_ticks() != 0;
  if (one_clock && mine.process_start_ticks() != other.process_start_ticks()) {
    return mine.process_start_ticks() > other.process_start_ticks();
  }
  return a.run() == b.run() ? a.epoch() > b.epoch() : mine.started_unix_us() > other.started_unix_us();
}

absl::StatusOr<const storage::SessionRow*> SessionOrder::Session(uint32_t epoch) {
  if (const auto known = sessions_.find(epoch); known != sessions_.end()) return &known->second;
  auto session = catalogue_->SessionOfEpoch(run_, epoch);
  if (!session.ok()) return session.status();
  return &(sessions_[epoch] = *std::move(session));
}

absl::StatusOr<bool> SessionOrder::BeganLater(uint32_t epoch, uint32_t other) {
  auto a = Session(epoch), b = Session(other);
  if (!a.ok()) return a.status();
  if (!b.ok()) return b.status();
  return server::BeganLater(**a, **b);
}

}  // namespace msprobe::server
