#include "agent/capture/filter/record_filter.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace msprobe::capture {
namespace {

OpenRecord Record(core::RecordKind kind, const std::string& name,
                  core::Direction direction = core::Direction::kForward) {
  OpenRecord record;
  record.kind = kind;
  record.name = std::make_shared<const std::string>(name);
  record.direction = direction;
  return record;
}

class RecordFilterTest : public ::testing::Test {
 protected:
  bool Wants(RecordFilter& filter, OpenRecord record) {
    filter.Judge(record);
    return record.wanted;
  }

  core::Config config_;
  const CaptureRules rules_{&config_, nullptr};
  const OpenRecord add_ = Record(core::RecordKind::kApi, "Tensor.add");
  const OpenRecord net_ = Record(core::RecordKind::kModule, "Module.net");
  const OpenRecord net_backward_ = Record(core::RecordKind::kModule, "Module.net", core::Direction::kBackward);
};

TEST_F(RecordFilterTest, WithoutScopeAndListTheRiskDecidesOfApisAlone) {
  config_.level = core::Level::kMix;
  config_.risk_level = core::RiskLevel::kCore;
  RecordFilter filter(config_, &rules_);
  EXPECT_FALSE(filter.changes());
  EXPECT_FALSE(Wants(filter, add_));
  EXPECT_TRUE(Wants(filter, net_));
  OpenRecord core = add_;
  core.risk = core::RiskLevel::kCore;
  EXPECT_TRUE(Wants(filter, core));
}

TEST_F(RecordFilterTest, AListDecidesInsteadOfTheRisk) {
  config_.level = core::Level::kMix;
  config_.risk_level = core::RiskLevel::kCore;
  config_.list = {"Tensor.add"};
  RecordFilter filter(config_, &rules_);
  EXPECT_TRUE(filter.changes());
  EXPECT_TRUE(Wants(filter, add_));
  EXPECT_FALSE(Wants(filter, Record(core::RecordKind::kApi, "Tensor.mul")));
}

TEST_F(RecordFilterTest, DataModeLeavesOutADirectionOfASelectedRecord) {
  config_.backward = false;
  RecordFilter filter(config_, &rules_);
  OpenRecord record = net_backward_;
  filter.Judge(record);
  EXPECT_TRUE(record.selected);
  EXPECT_FALSE(record.wanted);
}

TEST_F(RecordFilterTest, AScopeOfAModuleHoldsItsCalls) {
  config_.level = core::Level::kMix;
  config_.scope = {net_.FullName(), net_.FullName()};
  RecordFilter filter(config_, &rules_);
  EXPECT_FALSE(Wants(filter, add_));
  filter.BeginModule(net_);
  EXPECT_TRUE(Wants(filter, add_));
  filter.EndModule(net_);
  EXPECT_FALSE(Wants(filter, add_));
}

TEST_F(RecordFilterTest, KeepsTheGradientsOfModulesWhoseBackwardIsKept) {
  config_.list = {"Module.net"};
  RecordFilter filter(config_, &rules_);
  EXPECT_FALSE(filter.KeepsGradients("Module.other"));
  config_.list = {"backward"};
  RecordFilter backward(config_, &rules_);
  EXPECT_FALSE(backward.KeepsGradients("Module.net"));
  EXPECT_TRUE(Wants(backward, net_backward_));
  EXPECT_TRUE(backward.KeepsGradients("Module.net"));
  backward.EndStep();
  EXPECT_FALSE(backward.KeepsGradients("Module.net"));
}

}  // namespace
}  // namespace msprobe::capture
