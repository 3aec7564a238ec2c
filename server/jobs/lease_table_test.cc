#include "server/jobs/lease_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

using testing::ElementsAre;

Lease LeaseOf(uint64_t id, absl::Time deadline, size_t items, const std::string& peer) {
  Lease lease{.id = id, .job = static_cast<uint32_t>(id % 2), .worker = "w", .peer = peer, .items = {}};
  lease.duration = absl::Seconds(30);
  lease.deadline = deadline;
  lease.end = deadline + absl::Seconds(60);
  for (uint32_t i = 0; i < items; ++i) lease.items.push_back({.item = i});
  return lease;
}

TEST(LeaseTable, ExpiresInOrderOfDeadline) {
  const absl::Time start = absl::UnixEpoch();
  LeaseTable leases;
  leases.Add(LeaseOf(1, start + absl::Seconds(30), 2, "a"));
  leases.Add(LeaseOf(2, start + absl::Seconds(20), 3, "b"));
  EXPECT_EQ(leases.Expired(start + absl::Seconds(19)), nullptr);
  EXPECT_EQ(leases.Expired(start + absl::Seconds(40))->id, 2u);
  leases.PutOff(2, start + absl::Seconds(20));
  EXPECT_EQ(leases.Expired(start + absl::Seconds(40))->id, 1u);
  leases.PutOff(2, start + absl::Seconds(1000));
  EXPECT_EQ(leases.Find(2)->deadline, start + absl::Seconds(80)) << "not beyond its end";
}

TEST(LeaseTable, CountsItems) {
  LeaseTable leases;
  leases.Add(LeaseOf(1, absl::UnixEpoch(), 2, "a"));
  leases.Add(LeaseOf(3, absl::UnixEpoch(), 3, "a"));
  leases.Add(LeaseOf(2, absl::UnixEpoch(), 4, "b"));
  EXPECT_EQ(leases.items(), 9u);
  EXPECT_EQ(leases.items_of("a"), 5u);
  EXPECT_THAT(leases.OfJob(1), ElementsAre(1, 3));
  leases.Replace(1, {{.item = 1}});
  EXPECT_EQ(leases.items_of("a"), 4u);
  leases.Replace(1, {});
  EXPECT_EQ(leases.Find(1), nullptr) << "it goes with its last item";
  leases.Remove(3);
  EXPECT_EQ(leases.items_of("a"), 0u);
  EXPECT_EQ(leases.items(), 4u);
}

}  // namespace
}  // namespace msprobe::server
