#include "agent/capture/filter/name_filter.h"

#include <gtest/gtest.h>

namespace msprobe::capture {
namespace {

core::Config Configured(core::Level level, std::vector<std::string> scope, std::vector<std::string> list) {
  core::Config config;
  config.level = level;
  config.scope = std::move(scope);
  config.list = std::move(list);
  return config;
}

TEST(NameFilter, PassesEverythingWhenNothingIsConfigured) {
  NameFilter filter(Configured(core::Level::kMix, {}, {}));
  EXPECT_FALSE(filter.active());
  EXPECT_TRUE(filter.Check("Torch.add.0.forward"));
}

TEST(NameFilter, ListKeepsNamesThatContainAPart) {
  NameFilter filter(Configured(core::Level::kL1, {}, {"linear", "silu"}));
  EXPECT_TRUE(filter.Check("Functional.linear.3.forward"));
  EXPECT_TRUE(filter.Check("Functional.silu.0.backward"));
  EXPECT_FALSE(filter.Check("Tensor.add.0.forward"));
}

TEST(NameFilter, ListKeepsWhatRunsInsideAListedModuleAtMix) {
  NameFilter filter(Configured(core::Level::kMix, {}, {"layers.0.mlp"}));
  EXPECT_FALSE(filter.Check("Functional.linear.0.forward"));
  filter.BeginModule("Module.layers.0.mlp.MLP.forward.0");
  filter.BeginModule("Module.layers.0.mlp.up.Linear.forward.0");
  EXPECT_TRUE(filter.Check("Functional.linear.1.forward"));
  filter.EndModule("Module.layers.0.mlp.up.Linear.forward.0");
  EXPECT_TRUE(filter.Check("Tensor.__mul__.0.forward"));
  filter.EndModule("Module.layers.0.mlp.MLP.forward.0");
  EXPECT_FALSE(filter.Check("Functional.linear.2.forward"));
}

TEST(NameFilter, ScopeOfApisHoldsBothEnds) {
  NameFilter filter(Configured(core::Level::kL1, {"Torch.a.0.forward", "Torch.c.0.forward"}, {}));
  EXPECT_FALSE(filter.Check("Torch.z.0.forward"));
  EXPECT_TRUE(filter.Check("Torch.a.0.forward"));
  EXPECT_TRUE(filter.Check("Torch.b.0.forward"));
  EXPECT_TRUE(filter.Check("Torch.c.0.forward"));
  EXPECT_FALSE(filter.Check("Torch.d.0.forward"));
}

TEST(NameFilter, ScopeFromAModuleToItselfHoldsWhatRunsInside) {
  const std::string layer = "Module.layers.0.Layer.forward.0";
  NameFilter filter(Configured(core::Level::kMix, {layer, layer}, {}));
  filter.BeginModule(layer);
  EXPECT_TRUE(filter.Check(layer));
  EXPECT_TRUE(filter.Check("Functional.linear.0.forward"));
  EXPECT_TRUE(filter.Check(layer)) << "where the call ends";
  filter.EndModule(layer);
  EXPECT_FALSE(filter.Check("Functional.linear.1.forward"));
}

TEST(NameFilter, AStepThatEndsInsideAScopeDoesNotOpenTheNext) {
  NameFilter filter(Configured(core::Level::kL1, {"Torch.a.0.forward", "Torch.c.0.forward"}, {}));
  EXPECT_TRUE(filter.Check("Torch.a.0.forward"));
  filter.Reset();
  EXPECT_FALSE(filter.Check("Torch.b.0.forward"));
}

}  // namespace
}  // namespace msprobe::capture
