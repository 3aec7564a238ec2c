#include "server/analysis/module_tree/module_tree.h"

#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

TEST(ModuleTree, AModuleComesWithTheModulesAroundIt) {
  ModuleTree tree;
  const uint32_t mlp = tree.Add("model.layers.0.mlp");
  EXPECT_EQ(tree.Add("model.layers.0.mlp"), mlp);
  const ModuleTree::Module& module = tree.modules()[mlp];
  EXPECT_EQ(module.path, "model.layers.0.mlp");
  EXPECT_EQ(tree.modules()[module.parent].path, "model.layers.0");
  EXPECT_EQ(tree.Find("model.layers.0"), module.parent);
  EXPECT_EQ(tree.Find("layers"), std::nullopt);
  EXPECT_EQ(tree.modules().size(), 5u);
}

TEST(ModuleTree, AModuleIsFoundFromItsParent) {
  ModuleTree tree;
  const uint32_t mlp = tree.Add("model.mlp");
  const auto model = tree.FindChild(ModuleTree::kTop, "model");
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ(tree.FindChild(*model, "mlp"), mlp);
  EXPECT_EQ(tree.FindChild(*model, "other"), std::nullopt);
}

// "model.layers.0.experts.7.up" lies in layer 0.
TEST(ModuleTree, AModuleLiesInItsOutermostNumberedLayer) {
  ModuleTree tree;
  const uint32_t up = tree.Add("model.layers.0.experts.7.up");
  const auto layer = tree.Find("model.layers.0");
  ASSERT_TRUE(layer.has_value());
  EXPECT_EQ(tree.modules()[up].layer, *layer);
  EXPECT_EQ(tree.modules()[*layer].layer, *layer);
  EXPECT_EQ(tree.modules()[*tree.Find("model.layers")].layer, ModuleTree::kTop);
}

TEST(ModuleTree, TheTypeIsTheNameUntilARecordSaysIt) {
  ModuleTree tree;
  const uint32_t mlp = tree.Add("model.mlp");
  EXPECT_EQ(tree.modules()[mlp].type, "mlp");
  tree.SetType(mlp, "Qwen2MLP");
  EXPECT_EQ(tree.modules()[mlp].type, "Qwen2MLP");
  EXPECT_EQ(tree.modules()[*tree.Find("model")].type, "model");
  EXPECT_EQ(tree.modules()[ModuleTree::kTop].type, "TopLayer");
}

}  // namespace
}  // namespace msprobe::server
