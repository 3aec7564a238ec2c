#include "server/analysis/module_tree/module_name.h"

#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

TEST(LayerName, OfRecords) {
  const auto name = [](std::string_view record, std::string_view parent) {
    Entry entry;
    entry.name = record;
    entry.parent = parent;
    return LayerNameOf(entry);
  };
  EXPECT_EQ(name("Module.model.layers.3.mlp.Linear.forward.0", ""), "model.layers.3");
  EXPECT_EQ(name("Functional.linear.7.forward", "Module.model.layers.3.mlp.Linear.forward.0"), "model.layers.3");
  EXPECT_EQ(name("Module.lm_head.Linear.forward.0", ""), "lm_head");
  EXPECT_EQ(name("Functional.linear.7.forward", ""), "Functional.linear");
}

TEST(ModuleGroup, IsTheSameForEveryLayer) {
  EXPECT_EQ(ModuleGroup("model.layers.3.self_attn.q_proj"), "model.layers.*.self_attn");
  EXPECT_EQ(ModuleGroup("model.layers.27.self_attn"), "model.layers.*.self_attn");
  EXPECT_EQ(ModuleGroup("lm_head"), "lm_head");
  EXPECT_EQ(ModuleGroup("0.1"), "*.*");
  EXPECT_EQ(ModuleGroup(""), "none");
}

TEST(ModuleName, PartsAreTakenFromTheEnd) {
  EXPECT_EQ(WithoutLastParts("model.norm.Norm.forward.0", 3), "model.norm");
  EXPECT_EQ(WithoutLastParts("Norm.forward.0", 3), "");
  EXPECT_EQ(WithoutLastParts("", 1), "");
}

}  // namespace
}  // namespace msprobe::server
