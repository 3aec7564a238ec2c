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

}  // namespace
}  // namespace msprobe::server
