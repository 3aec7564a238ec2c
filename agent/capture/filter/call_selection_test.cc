#include "agent/capture/filter/call_selection.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace msprobe::capture {
namespace {

CallSelection::Name Named(const std::string& name) { return std::make_shared<const std::string>(name); }

core::Config Selecting(const std::string& select, core::Level level) {
  core::Config config;
  config.select = select;
  config.level = level;
  return config;
}

TEST(CallSelectionTest, WithoutSelectEverythingIsTaken) {
  CallSelection selection(Selecting("", core::Level::kMix));
  EXPECT_FALSE(selection.active());
  EXPECT_FALSE(selection.reads_around());
  EXPECT_TRUE(selection.TakesModule("Module.fc.Linear"));
  EXPECT_TRUE(selection.TakesApi({.name = "Tensor.add"}, nullptr));
}

TEST(CallSelectionTest, AnAnswerIsOneOfAnApiInAModule) {
  CallSelection selection(Selecting("api('add') & under('mlp')", core::Level::kMix));
  EXPECT_TRUE(selection.reads_around());
  const Api add{.name = "Tensor.add"}, mul{.name = "Tensor.mul"};
  const CallSelection::Name inside = Named("Module.mlp.fc.Linear"), outside = Named("Module.fc.Linear");
  for (int again = 0; again < 2; ++again) {
    EXPECT_TRUE(selection.TakesApi(add, inside));
    EXPECT_FALSE(selection.TakesApi(add, outside));
    EXPECT_FALSE(selection.TakesApi(add, nullptr));
    EXPECT_FALSE(selection.TakesApi(mul, inside));
  }
  EXPECT_FALSE(selection.TakesModule(*inside)) << "a module is no API";
}

TEST(CallSelectionTest, WhatIsAroundIsReadWhereItMatters) {
  EXPECT_FALSE(CallSelection(Selecting("api('add')", core::Level::kMix)).reads_around());
  EXPECT_FALSE(CallSelection(Selecting("Linear", core::Level::kL0)).reads_around()) << "there are no APIs";
  EXPECT_TRUE(CallSelection(Selecting("Linear", core::Level::kMix)).reads_around());
}

}  // namespace
}  // namespace msprobe::capture
