#include "agent/capture/fragments/fragment_builder.h"

#include <gtest/gtest.h>

namespace msprobe::capture {
namespace {

TensorReading Reading(const std::vector<int64_t>& shape, double max) {
  TensorReading reading;
  reading.shape.assign(shape.begin(), shape.end());
  reading.type = "torch.Tensor";
  reading.dtype = 2;
  reading.device = "cpu";
  reading.leaf.has_statistics = true;
  reading.leaf.max = max;
  return reading;
}

void BuildCall(FragmentBuilder& builder, double scalar, const TensorReading& reading) {
  builder.Start("Functional.linear", core::RecordKind::kApi, core::Direction::kForward);
  builder.Key("input_args");
  builder.BeginList();
  builder.Tensor(reading);
  builder.Float(scalar);
  builder.None();
  builder.End();
  builder.Key("input_kwargs");
  builder.BeginDict();
  builder.Key("mode");
  builder.String("mean");
  builder.Key("flag");
  builder.Boolean(true);
  builder.End();
}

TEST(FragmentBuilder, BuildsTheNestingOfWhatWasAdded) {
  FragmentBuilder builder;
  BuildCall(builder, 0.5, Reading({2, 3}, 7));
  const core::Structure structure = builder.BuildStructure();
  EXPECT_EQ(structure.name, "Functional.linear");
  EXPECT_EQ(structure.kind, core::RecordKind::kApi);
  ASSERT_EQ(structure.fields.children.size(), 2u);
  const core::Node& arguments = structure.fields.children[0];
  EXPECT_EQ(arguments.key, "input_args");
  ASSERT_EQ(arguments.children.size(), 3u);
  EXPECT_EQ(arguments.children[0].kind, core::NodeKind::kTensor);
  EXPECT_EQ(arguments.children[0].type, "torch.Tensor");
  EXPECT_EQ(arguments.children[0].device, "cpu");
  EXPECT_EQ(arguments.children[1].kind, core::NodeKind::kFloat);
  EXPECT_EQ(arguments.children[2].kind, core::NodeKind::kNone);
  const core::Node& keywords = structure.fields.children[1];
  EXPECT_EQ(keywords.children[0].key, "mode");
  EXPECT_EQ(keywords.children[1].kind, core::NodeKind::kBoolean);
}

TEST(FragmentBuilder, FillsColumnsInOrder) {
  FragmentBuilder builder;
  BuildCall(builder, 0.5, Reading({2, 3}, 7));
  core::Fragment fragment;
  builder.Fill(fragment);
  ASSERT_EQ(fragment.leaves.size(), 1u);
  EXPECT_EQ(std::vector<int64_t>(fragment.leaves[0].shape.begin(), fragment.leaves[0].shape.end()),
            (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(fragment.leaves[0].max, 7);
  EXPECT_EQ(fragment.floats[0], 0.5);
  EXPECT_TRUE(fragment.booleans[0]);
  EXPECT_EQ(fragment.strings[0], "mean");
}

TEST(FragmentBuilder, NumbersAndShapesAreNoPartOfTheSignature) {
  FragmentBuilder one, other;
  BuildCall(one, 0.5, Reading({2, 3}, 7));
  BuildCall(other, 0.25, Reading({4}, 8));
  EXPECT_EQ(one.signature(), other.signature());
  TensorReading half = Reading({2, 3}, 7);
  half.dtype = 3;
  BuildCall(other, 0.5, half);
  EXPECT_NE(one.signature(), other.signature());
}

TEST(FragmentBuilder, AnotherPassIsAnotherStructure) {
  FragmentBuilder first, second;
  first.Start("Torch.add", core::RecordKind::kApi, core::Direction::kBackward);
  second.Start("Torch.add", core::RecordKind::kApi, core::Direction::kBackward, 1);
  EXPECT_NE(first.signature(), second.signature());
  EXPECT_EQ(first.BuildStructure().pass, 0u);
  EXPECT_EQ(second.BuildStructure().pass, 1u);
  EXPECT_EQ(second.BuildStructure().name, "Torch.add");
}

TEST(FragmentBuilder, StartForgetsTheFragmentBefore) {
  FragmentBuilder builder;
  BuildCall(builder, 0.5, Reading({2, 3}, 7));
  builder.Start("Torch.add", core::RecordKind::kApi, core::Direction::kForward);
  EXPECT_TRUE(builder.empty());
  core::Fragment fragment;
  builder.Fill(fragment);
  EXPECT_TRUE(fragment.leaves.empty());
  EXPECT_TRUE(fragment.strings.empty());
  EXPECT_TRUE(builder.BuildStructure().fields.children.empty());
}

}  // namespace
}  // namespace msprobe::capture
