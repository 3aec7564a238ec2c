#include "server/shards/series_parts.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "server/analysis/series/sharded_step.h"
#include "server/format/storage/key.h"
#include "server/store/session_order.h"

namespace msprobe::server {
namespace {

constexpr size_t kPointsAPart = 100'000;

// The sessions of each rank, those that began first in front. They are inserted one by one, because BeganLater orders
// pairs, not whole lists.
std::map<uint32_t, std::vector<storage::SessionRow>> InOrder(std::vector<storage::SessionRow> sessions) {
  std::map<uint32_t, std::vector<storage::SessionRow>> ranks;
  for (storage::SessionRow& session : sessions) {
    std::vector<storage::SessionRow>& of_rank = ranks[RankCode(session.hello().rank())];
    auto at = of_rank.end();
    while (at != of_rank.begin() && BeganLater(*std::prev(at), session)) --at;
    of_rank.insert(at, std::move(session));
  }
  return ranks;
}

}  // namespace

absl::Status SeriesPartsHere(const Store& store, const shards::ReadSeriesRequest& request,
                             absl::FunctionRef<bool(const shards::SeriesPart& part)> send) {
  auto run = store.catalogue().FindRun(request.run());
  if (!run.ok()) return run.status();
  auto names = store.scalars().ReadNames(run->number());
  if (!names.ok()) return names.status();
  if (!request.name_glob().empty()) {
    const auto fits = [&](const std::string& name) {
      return fnmatch(request.name_glob().c_str(), name.c_str(), 0) == 0;
    };
    std::erase_if(*names, [&](const auto& name) {
      const std::vector<std::string> wholes = WholesOf(name.second);
      return !fits(name.second) && std::none_of(wholes.begin(), wholes.end(), fits);
    });
  }
  if (names->empty()) return absl::OkStatus();
  auto sessions = store.catalogue().Sessions(run->number());
  if (!sessions.ok()) return sessions.status();
  const Scalars::Range range{.first_step = request.first_step(), .last_step = request.last_step()};
  for (const auto& of_rank : InOrder(*std::move(sessions))) {
    const uint32_t rank = of_rank.first;
    for (const storage::SessionRow& session : of_rank.second) {
      absl::Status status = store.scalars().Read(
          run->number(), session.epoch(), *names, range, [&](uint64_t id, const std::vector<SeriesPoint>& points) {
            shards::SeriesPart part;
            part.set_name(names->at(id));
            part.set_rank(rank);
            part.set_opened_unix_us(OpenedUnixUs(session));
            part.set_epoch(session.epoch());
            for (size_t at = 0; at < points.size(); at += kPointsAPart) {
              part.clear_step();
              part.clear_value();
              for (size_t i = at; i < std::min(points.size(), at + kPointsAPart); ++i) {
                part.add_step(points[i].step);
                part.add_value(points[i].value);
              }
              if (!send(part)) return absl::CancelledError("nobody listens any more");
            }
            return absl::OkStatus();
          });
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
