#include "agent/core/payload/payload_pool.h"

#include <unistd.h>

#include <cstring>
#include <vector>

#include "agent/core/str_cat.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

class PayloadPoolTest : public testing::Test {
 protected:
  std::shared_ptr<Payload> Make(size_t size) {
    EXPECT_EQ(budget_->Acquire(size), MemoryBudget::Outcome::kGranted);
    return pool_->Make(size);
  }

  const std::shared_ptr<MemoryBudget> budget_ =
      std::make_shared<MemoryBudget>(1 << 20, LossPolicy::kDrop, absl::Seconds(1), [] {});
  const std::shared_ptr<PayloadPool> pool_ = std::make_shared<PayloadPool>(budget_);
};

TEST_F(PayloadPoolTest, GivesTheSameMemoryAgain) {
  std::shared_ptr<Payload> payload = Make(100'000);
  ASSERT_EQ(payload->bytes().size(), 100'000u);
  std::byte* const at = payload->bytes().data();
  payload.reset();
  EXPECT_EQ(budget_->used(), 0u);
  payload = Make(99'000);
  EXPECT_EQ(payload->bytes().data(), at);
  EXPECT_EQ(payload->bytes().size(), 99'000u);
}

TEST_F(PayloadPoolTest, IdleAndGrantedStayBelowTheCeiling) {
  std::vector<std::shared_ptr<Payload>> held;
  for (int i = 0; i < 9; ++i) held.push_back(Make(100'000));
  held.resize(5);
  EXPECT_LE(pool_->idle_bytes() + budget_->used(), budget_->ceiling());
  held.clear();
  EXPECT_GT(pool_->idle_bytes(), 0u);
  EXPECT_LE(pool_->idle_bytes(), budget_->ceiling());
}

TEST_F(PayloadPoolTest, IdleMemoryOfAnotherSizeMakesRoom) {
  for (int i = 0; i < 3; ++i) Make(300'000).reset();
  std::vector<std::shared_ptr<Payload>> held = {Make(500'000), Make(500'000)};
  held.clear();
  EXPECT_LE(pool_->idle_bytes(), budget_->ceiling());
}

TEST_F(PayloadPoolTest, PayloadsLieInTheSessionsMemoryAsFarAsItHasRoom) {
  EXPECT_EQ(Make(100'000)->shared_offset(), std::nullopt) << "of this process alone";
  const std::string path = Cat(SharedFile::kDirectory, "/msprobe-payload-pool-", getpid());
  SessionOrigin origin;
  origin.mutable_hello()->set_session("whose");
  const auto memory = SessionMemory::Create(path, "", budget_->ceiling(), origin);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const auto pool = std::make_shared<PayloadPool>(budget_, *memory);
  ASSERT_EQ(budget_->Acquire(201'000), MemoryBudget::Outcome::kGranted);
  const std::shared_ptr<Payload> large = pool->Make(200'000), small = pool->Make(1000);
  (*memory)->Remove();
  if (!large->shared_offset().has_value()) GTEST_SKIP() << SharedFile::kDirectory << " has no room";
  EXPECT_TRUE(small->shared_offset().has_value());
  EXPECT_NE(*large->shared_offset(), *small->shared_offset());
}

}  // namespace
}  // namespace msprobe::core
