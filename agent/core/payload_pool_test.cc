#include "agent/core/payload_pool.h"

#include <cstring>
#include <filesystem>
#include <fstream>

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

TEST_F(PayloadPoolTest, PayloadsLieInTheSharedFileAsFarAsItHasRoom) {
  EXPECT_EQ(Make(100'000)->shared_offset(), std::nullopt) << "nobody has asked for it";
  const std::string name = pool_->Share();
  if (name.empty()) GTEST_SKIP() << SharedFile::kDirectory << " cannot be shared from";
  EXPECT_EQ(pool_->Share(), name);
  const std::shared_ptr<Payload> large = Make(200'000), small = Make(1000);
  if (!large->shared_offset().has_value()) GTEST_SKIP() << SharedFile::kDirectory << " has no room";
  EXPECT_EQ(small->shared_offset(), std::nullopt) << "that goes in a message";
  std::memset(large->bytes().data(), 'x', large->size());
  std::ifstream file(Cat(SharedFile::kDirectory, "/", name));
  file.seekg(static_cast<std::streamoff>(*large->shared_offset()));
  std::string content(large->size(), '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  EXPECT_EQ(content, std::string(200'000, 'x'));

  pool_->EndSharing();
  EXPECT_FALSE(std::filesystem::exists(Cat(SharedFile::kDirectory, "/", name)));
  EXPECT_NE(Make(300'000), nullptr);
}

TEST_F(PayloadPoolTest, WithoutASharedFileMemoryIsOfThisProcess) {
  EXPECT_EQ(pool_->Share("/nowhere"), "");
  const std::shared_ptr<Payload> payload = Make(200'000);
  ASSERT_NE(payload, nullptr);
  EXPECT_EQ(payload->shared_offset(), std::nullopt);
}

}  // namespace
}  // namespace msprobe::core
