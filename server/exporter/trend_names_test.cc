#include "server/exporter/trend_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string Record(const std::string& name) {
  const auto record = TrendRecordOf(name);
  return record ? Cat(kTrendMetrics[static_cast<size_t>(record->metric)], " ", record->name, " ", record->call) : "none";
}

std::vector<std::string> Texts(const std::vector<TrendTag>& tags) {
  std::vector<std::string> texts;
  for (const TrendTag& tag : tags) texts.push_back(Cat(tag.name, " (", tag.category, ")"));
  return texts;
}

TEST(TrendNamesTest, ARecordIsNamedWithoutDirectionAndNumber) {
  EXPECT_EQ(Record("Module.layers.0.fc.Linear.forward.3"), "forward Module.layers.0.fc.Linear 3");
  EXPECT_EQ(Record("Functional.linear.12.backward"), "backward Functional.linear 12");
  EXPECT_EQ(Record("Module.fc.Linear.parameters_grad"), "parameters_grad Module.fc.Linear 0");
  EXPECT_EQ(Record("Module.fc.Linear.parameters_grad.2"), "parameters_grad Module.fc.Linear 2");
  EXPECT_EQ(Record("loss"), "none");
  EXPECT_EQ(Record(""), "none");
}

TEST(TrendNamesTest, TensorsHaveTheTagsOfTheirPlace) {
  EXPECT_THAT(Texts(TagsOfTensor("Module.blocks.3.layer.1.conv.Conv2d.input.0")),
              ElementsAre("Module (default)", "blocks.3 (layer)", "conv.Conv2d (module)", "input.0 (index)",
                          "layer.1 (layer)"));
  EXPECT_THAT(Texts(TagsOfTensor("Module.model.layers.0.Block.parameters.weight")),
              ElementsAre("Block (module)", "Module (default)", "layers.0 (layer)", "model (module)",
                          "parameters (default)", "parameters.weight (index)"));
  EXPECT_THAT(Texts(TagsOfTensor("Torch.add.output.0")), ElementsAre("Torch.add (function)", "output.0 (index)"));
  EXPECT_THAT(TagsOfTensor("Module.input.0"), IsEmpty());
  EXPECT_THAT(TagsOfTensor("a.b"), IsEmpty());
}

TEST(TrendNamesTest, WhatAMonitorWatchesHasTheTagsOfItsParts) {
  EXPECT_THAT(Texts(TagsOfWatched("layers.2.3.attn.weight")),
              ElementsAre("attn (module)", "layers (module)", "layers.2 (layer)", "weight (module)"));
}

}  // namespace
}  // namespace msprobe::server
