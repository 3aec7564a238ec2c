#include "agent/capture/reading/remembered_statistics.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agent/stats/fleeting_memory.h"

namespace msprobe::capture {
namespace {

using Memory = RememberedStatistics::Memory;

class Owner final : public MemoryOwner {
 public:
  bool expired() const override { return gone; }
  std::shared_ptr<const void> Hold() const override { return gone ? nullptr : std::make_shared<int>(0); }
  bool gone = false;
};

class RememberedStatisticsTest : public testing::Test {
 protected:
  void SetUp() override {
    watch_ = stats::WriteWatch::Create();
    if (watch_ == nullptr) GTEST_SKIP() << "this kernel has no asynchronous write protection (Linux 6.7), or denies it";
    remembered_ = std::make_unique<RememberedStatistics>(watch_);
    owner_ = std::make_shared<Owner>();
  }

  Memory MemoryOf() const {
    return {.id = elements_.data(), .bytes = std::as_bytes(std::span(elements_)), .is_private = true, .lasts = true};
  }
  static std::shared_ptr<const MemoryOwner> OwnerOf(const void*) { return owner_; }

  // Whether the numbers of all elements are known; if not, these are remembered from now on.
  bool Known(const Memory& memory, double max = 1) {
    const int64_t sizes[] = {static_cast<int64_t>(elements_.size())}, strides[] = {1};
    const stats::TensorView view{
        .data = elements_.data(), .dtype = stats::DType::kFloat32, .sizes = sizes, .strides = strides};
    core::Leaf leaf;
    const RememberedStatistics::Place place = remembered_->Recall(memory, view, &leaf);
    if (place.known) {
      EXPECT_EQ(leaf.max, max);
      return true;
    }
    leaf.max = max;
    remembered_->Remember(place, view, leaf);
    return false;
  }

  // Reads all elements ahead, as if `maximum` were theirs. `meanwhile` happens when most of them are read.
  void ReadAhead(double maximum, absl::FunctionRef<void()> meanwhile) {
    const int64_t sizes[] = {static_cast<int64_t>(elements_.size())}, strides[] = {1};
    const stats::TensorView view{
        .data = elements_.data(), .dtype = stats::DType::kFloat32, .sizes = sizes, .strides = strides};
    std::vector<std::byte> room(4096);
    const auto goes_on = [] { return true; };
    remembered_->ReadAhead({.memory = MemoryOf(), .owner = owner_}, view, room, goes_on,
                           [&](const stats::TensorView& copied, core::Leaf& numbers) {
                             const auto* at = static_cast<const std::byte*>(copied.data);
                             for (size_t done = 0; done < 4 * elements_.size(); done += room.size()) {
                               if (done + room.size() >= 4 * elements_.size()) meanwhile();
                               copied.fleeting->At(at + done, room.size());
                             }
                             numbers.max = maximum;
                           });
  }

  static inline std::shared_ptr<Owner> owner_;
  std::vector<float> elements_ = std::vector<float>(size_t{1} << 18);
  std::shared_ptr<const stats::WriteWatch> watch_;
  std::unique_ptr<RememberedStatistics> remembered_;
};

TEST_F(RememberedStatisticsTest, WhatIsWrittenIsReadAgainAndRestsForAWhile) {
  EXPECT_FALSE(Known(MemoryOf()));
  EXPECT_TRUE(Known(MemoryOf()));
  elements_[5] = 1;
  EXPECT_FALSE(Known(MemoryOf()));
  EXPECT_FALSE(Known(MemoryOf())) << "it may be written every step";
  for (uint64_t step = 0; step < RememberedStatistics::kPatience; ++step) remembered_->EndStep();
  EXPECT_FALSE(Known(MemoryOf(), 2));
  EXPECT_TRUE(Known(MemoryOf(), 2));
}

TEST_F(RememberedStatisticsTest, WhatMayNotLastIsRememberedFromItsSecondStep) {
  Memory memory = MemoryOf();
  memory.lasts = false;
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(Known(memory));
  remembered_->EndStep();
  EXPECT_FALSE(Known(memory));
  EXPECT_TRUE(Known(memory));
}

TEST_F(RememberedStatisticsTest, WhatIsAboutToChangeIsNot) {
  Memory memory = MemoryOf();
  memory.changes = true;
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(Known(memory));
}

TEST_F(RememberedStatisticsTest, WhatIsReadAheadIsKnownAtItsFirstCall) {
  ReadAhead(3, [] {});
  EXPECT_TRUE(Known(MemoryOf(), 3));
  elements_[7] = 1;
  EXPECT_FALSE(Known(MemoryOf())) << "written since";
}

TEST_F(RememberedStatisticsTest, WhatIsWrittenWhileItIsReadAheadIsReadByItsCall) {
  for (const size_t at : {size_t{0}, size_t{5000}, elements_.size() - 1}) {
    remembered_ = std::make_unique<RememberedStatistics>(watch_);
    ReadAhead(3, [&] { elements_[at] += 1; });
    EXPECT_FALSE(Known(MemoryOf())) << at;
  }
}

TEST_F(RememberedStatisticsTest, WhatIsAskedForWhileItIsReadAheadIsRememberedFromItsNextCall) {
  ReadAhead(3, [&] { EXPECT_FALSE(Known(MemoryOf(), 2)); });
  EXPECT_FALSE(Known(MemoryOf(), 2)) << "what was read ahead does not count";
  EXPECT_TRUE(Known(MemoryOf(), 2));
  ReadAhead(3, [] {});
  EXPECT_TRUE(Known(MemoryOf(), 2)) << "nor after it was asked for";
}

TEST_F(RememberedStatisticsTest, WhatIsFreedWhileItIsReadAheadIsForgotten) {
  ReadAhead(3, [&] { owner_->gone = true; });
  owner_ = std::make_shared<Owner>();
  EXPECT_FALSE(Known(MemoryOf(), 2));
}

TEST_F(RememberedStatisticsTest, WhatSurelyIsPrivateIsNotAskedOf) {
  Memory memory = MemoryOf();
  memory.is_private = false;
  EXPECT_FALSE(Known(memory));
  EXPECT_EQ(Known(memory), watch_->IsPrivate(memory.bytes));
}

TEST_F(RememberedStatisticsTest, AnOwnerThatIsGoneTakesItsNumbersAlong) {
  Memory memory = MemoryOf();
  memory.owner_of = OwnerOf;
  EXPECT_FALSE(Known(memory));
  EXPECT_TRUE(Known(memory));
  owner_->gone = true;
  remembered_->EndStep();
  owner_ = std::make_shared<Owner>();
  EXPECT_FALSE(Known(memory));
}

TEST_F(RememberedStatisticsTest, WithoutAnOwnerWhatNobodyAsksForIsForgotten) {
  EXPECT_FALSE(Known(MemoryOf()));
  for (uint64_t step = 0; step < RememberedStatistics::kForgetAfter; ++step) remembered_->EndStep();
  EXPECT_TRUE(Known(MemoryOf()));
  for (uint64_t step = 0; step <= RememberedStatistics::kForgetAfter; ++step) remembered_->EndStep();
  EXPECT_FALSE(Known(MemoryOf()));
}

}  // namespace
}  // namespace msprobe::capture
