#include "server/store/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/store/store_fixture.h"

namespace msprobe::server {
namespace {

using testing::HasSubstr;

using CatalogueTest = StoreTest;

TEST_F(CatalogueTest, SessionsJoinRunsByNameAndGetEpochsInOrder) {
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('a', "r"))->epoch(), 0u);
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('b', "r"))->epoch(), 1u);
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('c', "s"))->epoch(), 0u);
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('a', "r"))->epoch(), 0u) << "known";
  Reopen();
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('d', "r"))->epoch(), 2u);
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('e', "t"))->run(), 3u);
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('a', "other")).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store_->catalogue().SessionOfEpoch(1, 1)->session(), std::string(16, 'b'));
}

TEST_F(CatalogueTest, ARunIsPlacedOnceAndKeepsItsShardsAndItsOwner) {
  EXPECT_FALSE(store_->catalogue().LookUpRun("r")->has_value());
  ASSERT_TRUE(store_->catalogue().PlaceRun("r", {"a:1", "b:1"}, "alice").ok());
  const auto again = store_->catalogue().PlaceRun("r", {"c:1"}, "bob");
  ASSERT_TRUE(again.ok());
  EXPECT_THAT(again->shards(), testing::ElementsAre("a:1", "b:1"));
  EXPECT_EQ(again->owner(), "alice");
  EXPECT_EQ(store_->catalogue().RegisterSession(HelloOf('a', "r"))->run(), again->number());
}

TEST_F(CatalogueTest, ARunKeepsItsPinAndTheLatestHundredNotes) {
  ASSERT_TRUE(store_->catalogue().RegisterSession(HelloOf('a', "r")).ok());
  ASSERT_TRUE(store_->catalogue().SetPinned("r", true).ok());
  for (int64_t i = 0; i < 103; ++i) {
    v1::ControlNote note;
    note.set_at_unix_us(i);
    ASSERT_TRUE(store_->catalogue().NoteControl("r", note).ok());
  }
  Reopen();
  const auto run = store_->catalogue().FindRun("r");
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(run->pinned());
  ASSERT_EQ(run->control_notes_size(), 100);
  EXPECT_EQ(run->control_notes(0).at_unix_us(), 3);
  EXPECT_THAT(std::string(store_->catalogue().SetPinned("x", true).message()), HasSubstr("there are: r"));
}

}  // namespace
}  // namespace msprobe::server
