#include "agent/capture/filter/capture_rules.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace msprobe::capture {
namespace {

constexpr core::Direction kForward = core::Direction::kForward, kBackward = core::Direction::kBackward;

OpenRecord Named(const std::string& name) {
  OpenRecord record;
  record.name = std::make_shared<const std::string>(name);
  return record;
}

TEST(CaptureRulesTest, KeepsTheSidesOfDataMode) {
  core::Config config;
  config.forward = true, config.backward = false;
  config.input = false, config.output = true;
  const CaptureRules rules(&config, nullptr);
  EXPECT_TRUE(rules.WantsDirection(kForward));
  EXPECT_FALSE(rules.WantsDirection(kBackward));
  EXPECT_FALSE(rules.WantsInput(kForward));
  EXPECT_TRUE(rules.WantsOutput(kForward));
  EXPECT_FALSE(rules.WantsOutput(kBackward));
}

TEST(CaptureRulesTest, TaskStructureHasNoFields) {
  core::Config config;
  config.task = core::Task::kStructure;
  const CaptureRules rules(&config, nullptr);
  EXPECT_FALSE(rules.WantsInput(kForward));
  EXPECT_FALSE(rules.WantsOutput(kForward));
}

TEST(CaptureRulesTest, RiskLevelLeavesOutApisOfLessRisk) {
  core::Config config;
  config.level = core::Level::kL1;
  const auto wants = [&](core::RiskLevel asked, core::RiskLevel risk) {
    config.risk_level = asked;
    return CaptureRules(&config, nullptr).WantsRisk(risk);
  };
  using core::RiskLevel;
  EXPECT_TRUE(wants(RiskLevel::kAll, RiskLevel::kAll));
  EXPECT_FALSE(wants(RiskLevel::kFocus, RiskLevel::kAll));
  EXPECT_TRUE(wants(RiskLevel::kFocus, RiskLevel::kFocus));
  EXPECT_FALSE(wants(RiskLevel::kCore, RiskLevel::kFocus));
  EXPECT_TRUE(wants(RiskLevel::kCore, RiskLevel::kCore));
  config.level = core::Level::kL0;
  EXPECT_TRUE(wants(RiskLevel::kCore, RiskLevel::kAll));  // at a level without APIs
}

TEST(CaptureRulesTest, SavesTheTensorsThatTensorListNames) {
  core::Config config;
  config.task = core::Task::kStatistics;
  EXPECT_FALSE(CaptureRules(&config, nullptr).Saves(Named("Tensor.add")));
  config.tensor_list = {"relu", "Tensor.add.0"};
  EXPECT_TRUE(CaptureRules(&config, nullptr).Saves(Named("Tensor.add")));
  EXPECT_FALSE(CaptureRules(&config, nullptr).Saves(Named("Tensor.mul")));
  config.task = core::Task::kTensor;
  EXPECT_TRUE(CaptureRules(&config, nullptr).Saves(Named("Tensor.mul")));
}

TEST(CaptureRulesTest, WithABenchPathSavesOnlyWhileItCompares) {
  core::Config config;
  config.task = core::Task::kTensor;
  DiffCheck diff_check(1);
  const CaptureRules rules(&config, &diff_check);
  EXPECT_FALSE(rules.Saves(Named("Tensor.add")));
  diff_check.SetBench(std::make_shared<const BenchDump>());
  EXPECT_TRUE(rules.Saves(Named("Tensor.add")));
}

}  // namespace
}  // namespace msprobe::capture
