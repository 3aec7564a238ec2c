#include "server/analysis/tensor/tensor_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/analysis/table/dump_reader.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Leaf(const std::string& max, const std::string& min, const std::string& shape = "[2, 8]",
                 const std::string& dtype = "float32") {
  return R"({"type":"torch.Tensor","dtype":"torch.)" + dtype + R"(","shape":)" + shape + R"(,"Max":)" + max +
         R"(,"Min":)" + min + R"(,"Mean":0.5,"Norm":1.0,"requires_grad":false})";
}

// Each leaf is the input of an operation of its own: names are the indexes.
StepTable Table(const std::vector<std::string>& leaves) {
  StepTable table;
  DumpReader builder(&table);
  for (size_t i = 0; i < leaves.size(); ++i) {
    EXPECT_TRUE(builder
                    .AddEntry("Torch.op." + std::to_string(i) + ".forward",
                              R"({"input_args":[)" + leaves[i] + R"(],"output":[]})", 0)
                    .ok());
  }
  return table;
}

std::vector<size_t> Found(const StepTable& table, TensorQuestion question) {
  auto filter = TensorFilter::Make(std::move(question));
  EXPECT_TRUE(filter.ok()) << filter.status();
  std::vector<size_t> found;
  for (size_t i = 0; i < table.entries.size(); ++i) {
    const Entry& entry = table.entries[i];
    if (filter->Takes(table, entry) && filter->Takes(table, entry, table.rows[entry.first_row])) found.push_back(i);
  }
  return found;
}

std::vector<size_t> Where(const StepTable& table, Statistic statistic, Relation relation, double value) {
  TensorQuestion question;
  question.predicates.push_back({statistic, relation, value});
  return Found(table, std::move(question));
}

std::string Refusal(TensorQuestion question) {
  auto filter = TensorFilter::Make(std::move(question));
  EXPECT_EQ(filter.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(filter.status().message());
}

TEST(TensorFilterTest, MaxAndMinSayOfCountsThatADumpLacks) {
  const StepTable table = Table({Leaf("1.0", "-1.0"), Leaf("NaN", "NaN"), Leaf("Infinity", "0.0"),
                                 Leaf("Infinity", "-Infinity"), Leaf("0.0", "0.0")});
  EXPECT_THAT(Where(table, Statistic::kNan, Relation::kGreater, 0), ElementsAre(1));
  EXPECT_THAT(Where(table, Statistic::kNan, Relation::kNotEqual, 0), ElementsAre(1));
  EXPECT_THAT(Where(table, Statistic::kNan, Relation::kEqual, 0), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(Where(table, Statistic::kInf, Relation::kGreater, 0), ElementsAre(2, 3));
  EXPECT_THAT(Where(table, Statistic::kInf, Relation::kGreater, 1), ElementsAre(3));
  EXPECT_THAT(Where(table, Statistic::kInf, Relation::kEqual, 0), ElementsAre(0, 4));  // of 1 nobody knows
  EXPECT_THAT(Where(table, Statistic::kZero, Relation::kEqual, 16), ElementsAre(4));
  EXPECT_THAT(Where(table, Statistic::kZeroShare, Relation::kGreaterOrEqual, 1), ElementsAre(4));
  EXPECT_THAT(Where(table, Statistic::kZero, Relation::kGreater, 0), ElementsAre(2, 4));
}

TEST(TensorFilterTest, WhatBoundsDoNotDecideIsNotFound) {
  const StepTable table = Table({Leaf("NaN", "NaN")});
  EXPECT_THAT(Where(table, Statistic::kNan, Relation::kGreater, 1), IsEmpty());
  EXPECT_THAT(Where(table, Statistic::kNan, Relation::kLess, 16), IsEmpty());
  EXPECT_THAT(Where(table, Statistic::kVariance, Relation::kGreaterOrEqual, 0), IsEmpty());
}

TEST(TensorFilterTest, CapturedCountsWinOverBounds) {
  std::string leaf = Leaf("NaN", "NaN");
  leaf.insert(leaf.size() - 1, R"(,"extended":{"Variance":0.5,"nan_count":3,"positive_inf_count":0,)"
                               R"("negative_inf_count":2,"zero_count":1})");
  const StepTable table = Table({leaf});
  ASSERT_GE(table.rows[0].extended, 0);
  EXPECT_THAT(Where(table, Statistic::kNan, Relation::kEqual, 3), ElementsAre(0));
  EXPECT_THAT(Where(table, Statistic::kInf, Relation::kEqual, 2), ElementsAre(0));
}

TEST(TensorFilterTest, NumbersAreComparedAsTheyAre) {
  const StepTable table = Table({Leaf("10001.0", "-3.0"), Leaf("10000.0", "3.0"), Leaf("NaN", "NaN")});
  EXPECT_THAT(Where(table, Statistic::kMax, Relation::kGreater, 1e4), ElementsAre(0));
  EXPECT_THAT(Where(table, Statistic::kMax, Relation::kGreaterOrEqual, 1e4), ElementsAre(0, 1));
  EXPECT_THAT(Where(table, Statistic::kMin, Relation::kLess, 0), ElementsAre(0));
  EXPECT_THAT(Where(table, Statistic::kMax, Relation::kEqual, std::nan("")), ElementsAre(2));
  EXPECT_THAT(Where(table, Statistic::kMax, Relation::kNotEqual, std::nan("")), ElementsAre(0, 1));
  EXPECT_THAT(Where(table, Statistic::kElements, Relation::kEqual, 16), ElementsAre(0, 1, 2));
}

TEST(TensorFilterTest, ShapesTakeAnySizeAndAnyNumberOfDimensions) {
  const StepTable table =
      Table({Leaf("1", "0", "[]"), Leaf("1", "0", "[8]"), Leaf("1", "0", "[2, 8]"), Leaf("1", "0", "[2, 4, 8]")});
  const auto shaped = [&](const std::string& shape) {
    TensorQuestion question;
    question.shape = shape;
    return Found(table, std::move(question));
  };
  EXPECT_THAT(shaped("[]"), ElementsAre(0));
  EXPECT_THAT(shaped("[2, *]"), ElementsAre(2));
  EXPECT_THAT(shaped("[..., 8]"), ElementsAre(1, 2, 3));
  EXPECT_THAT(shaped("[2, ..., 8]"), ElementsAre(2, 3));
  EXPECT_THAT(shaped("[...]"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(shaped("2,*,8"), ElementsAre(3));
}

TEST(TensorFilterTest, NamesDTypesModulesAndStacksAllHaveToFit) {
  StepTable table = Table({Leaf("1.0", "0.0"), Leaf("1.0", "0.0", "[2]", "bfloat16")});
  table.entries[0].parent = "Module.layers.1.Block.forward.0";
  table.entries[1].parent = "Module.layers.10.Block.forward.0";
  table.stacks = {{"File /a.py, line 1, in f, \n f()"}};
  table.entries[1].stack = 0;
  const auto with = [&](auto set) {
    TensorQuestion question;
    set(question);
    return Found(table, std::move(question));
  };
  EXPECT_THAT(with([](TensorQuestion& each) { each.name_glob = "Torch.op.1*"; }), ElementsAre(1));
  EXPECT_THAT(with([](TensorQuestion& each) { each.name_glob = "*.input.0"; }), ElementsAre(0, 1));
  EXPECT_THAT(with([](TensorQuestion& each) { each.name_regex = "op\\.0.*input"; }), ElementsAre(0));
  EXPECT_THAT(with([](TensorQuestion& each) { each.dtypes = {"BFloat16", "int8"}; }), ElementsAre(1));
  EXPECT_THAT(with([](TensorQuestion& each) { each.module = "layers.1"; }), ElementsAre(0));
  EXPECT_THAT(with([](TensorQuestion& each) { each.module = "layers"; }), ElementsAre(0, 1));
  EXPECT_THAT(with([](TensorQuestion& each) { each.stack_text = "a.py"; }), ElementsAre(1));
  EXPECT_THAT(with([](TensorQuestion& each) {
                each.stack_text = "a.py";
                each.dtypes = {"float32"};
              }),
              IsEmpty());
}

TEST(TensorFilterTest, WhatCannotBeReadIsRefusedByName) {
  TensorQuestion question;
  question.dtypes = {"float31"};
  EXPECT_THAT(Refusal(question), HasSubstr("\"float31\""));
  question = {};
  question.name_regex = "(";
  EXPECT_THAT(Refusal(question), HasSubstr("name_regex \"(\""));
  question = {};
  question.shape = "[2, x]";
  EXPECT_THAT(Refusal(question), HasSubstr("has x, which is neither a size"));
  for (const char* shape : {"[4,", "[4", "4]", "[", "[4,,2]", "[4,]", ",", "[4][2]"}) {
    question.shape = shape;
    EXPECT_THAT(Refusal(question), HasSubstr(std::string("shape \"") + shape + "\" has ")) << shape;
  }
  question.shape = "[..., 2, ...]";
  EXPECT_THAT(Refusal(question), HasSubstr("more than once"));
  question = {};
  question.predicates.push_back({static_cast<Statistic>(99), Relation::kLess, 0});
  EXPECT_THAT(Refusal(question), HasSubstr("statistic 99"));
}

}  // namespace
}  // namespace msprobe::server
