#include "server/analysis/divergence/overflow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "server/analysis/table/dump_reader.h"

namespace msprobe::server {
namespace {

std::string Leaf(const std::string& max, bool grad = false, const std::string& mean = "0.0") {
  return R"({"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"Max":)" + max + R"(,"Min":0.0,"Mean":)" + mean +
         R"(,"Norm":1.0,"requires_grad":)" + (grad ? "true" : "false") + "}";
}

std::string Call(const std::string& inputs, const std::string& outputs) {
  return R"({"input_args":[)" + inputs + R"(],"output":[)" + outputs + "]}";
}

using Entries = std::vector<std::pair<std::string, std::string>>;

std::unique_ptr<StepTable> TableOf(const Entries& entries) {
  auto table = std::make_unique<StepTable>();
  DumpReader builder(table.get());
  for (const auto& [name, json] : entries) EXPECT_TRUE(builder.AddEntry(name, json, 0).ok());
  return table;
}

// Where a step without origins received NaN or infinity. Empty: nowhere.
std::string Received(const Entries& entries) {
  const auto table = TableOf(entries);
  EXPECT_THAT(FindOverflowOrigins(*table), testing::IsEmpty());
  const std::optional<uint32_t> row = FindReceived(*table);
  return row.has_value() ? std::string(table->rows[*row].name) : "";
}

std::vector<std::string> Origins(const Entries& entries) {
  const auto made = TableOf(entries);
  const StepTable& table = *made;
  std::vector<std::string> found;
  for (const OverflowOrigin& origin : FindOverflowOrigins(table)) {
    constexpr const char* kNames[] = {"", " computation", " weight", " input"};
    found.push_back(std::string(table.rows[origin.row].name) + kNames[static_cast<int>(origin.origin)] +
                    (origin.nan ? " nan" : "") + (origin.infinity ? " inf" : ""));
  }
  return found;
}

TEST(OverflowTest, TheProducerIsTheOriginAndNotWhatPassesItOn) {
  EXPECT_THAT(Origins({{"Torch.log.0.forward", Call(Leaf("1.0"), Leaf("Infinity"))},
                       {"Torch.mul.0.forward", Call(Leaf("Infinity"), Leaf("NaN"))},
                       {"Module.a.b.B.forward.0", Call(Leaf("NaN"), Leaf("NaN"))}}),
              testing::ElementsAre("Torch.log.0.forward.output.0 computation inf"));
}

TEST(OverflowTest, TheModuleAroundAnOriginIsNone) {
  const std::string inner = "Module.a.b.B.forward.0";
  const std::string outer = "Module.a.A.forward.0";
  EXPECT_THAT(Origins({{inner, Call(Leaf("1.0"), Leaf("NaN"))}, {outer, Call(Leaf("1.0"), Leaf("NaN"))}}),
              testing::ElementsAre(inner + ".output.0 computation nan"));
}

TEST(OverflowTest, WeightsAndInputsAreOriginsOnce) {
  const std::string nan = Leaf("NaN", true);
  EXPECT_THAT(Origins({{"Functional.linear.0.forward", Call(Leaf("1.0") + "," + nan, Leaf("NaN"))},
                       {"Functional.linear.1.forward", Call(Leaf("1.0") + "," + nan, Leaf("NaN"))}}),
              testing::ElementsAre("Functional.linear.0.forward.input.1 weight nan"));
  EXPECT_THAT(Origins({{"Torch.add.0.forward", Call(Leaf("Infinity"), Leaf("Infinity"))}}),
              testing::ElementsAre("Torch.add.0.forward.input.0 input inf"));
}

TEST(OverflowTest, ViewsOfWhatWasNotFiniteAreNone) {
  const auto shaped = [](const std::string& shape, const std::string& max) {
    return R"({"type":"torch.Tensor","dtype":"torch.float32","shape":)" + shape + R"(,"Max":)" + max +
           R"(,"Min":0.0,"Mean":0.0,"Norm":1.0,"requires_grad":true})";
  };
  const std::string module = R"({"input_args":[],"parameters":{"weight":)" + shaped("[3]", "NaN") + R"(},"output":[)" +
                             shaped("[2, 12]", "NaN") + "]}";
  const std::vector<std::pair<std::string, std::string>> entries = {
      {"Torch.log.0.forward", Call(shaped("[2, 3, 4]", "1.0"), shaped("[2, 3, 4]", "NaN"))},
      {"Torch.addmm.0.forward", Call(shaped("[6, 4]", "NaN"), shaped("[6, 8]", "NaN"))},      // view(-1, 4)
      {"Torch.bmm.0.forward", Call(shaped("[2, 3, 2]", "NaN"), shaped("[2, 3, 1]", "NaN"))},  // a slice
      {"Functional.norm.0.forward",
       Call(shaped("[2, 12]", "NaN") + "," + shaped("[3]", "NaN"), shaped("[2, 12]", "NaN"))},
      {"Functional.embedding.0.forward", Call(shaped("[90, 4]", "NaN"), shaped("[2, 12]", "NaN"))}};
  auto with_module = entries;
  with_module.emplace_back("Module.n.Norm.forward.0", module);
  EXPECT_THAT(Origins(with_module), testing::ElementsAre("Torch.log.0.forward.output.0 computation nan",
                                                         "Functional.norm.0.forward.input.1 weight nan",
                                                         "Functional.embedding.0.forward.input.0 weight nan"));
  EXPECT_THAT(Origins(entries), testing::ElementsAre("Torch.log.0.forward.output.0 computation nan",
                                                     "Functional.embedding.0.forward.input.0 weight nan"))
      << "without parameters, a second weight shows by its size alone";
}

TEST(OverflowTest, GradientsAfterAnOriginOfTheForwardPassFollowFromIt) {
  const auto backward = [](const std::string& given, const std::string& made) {
    return R"({"input":[)" + given + R"(],"output":[)" + made + "]}";
  };
  const std::string weights = R"({"weight":[)" + Leaf("NaN") + "]}";
  const std::pair<std::string, std::string> overflow = {"Torch.exp.0.forward", Call(Leaf("100.0"), Leaf("Infinity"))};
  const std::pair<std::string, std::string> fine = {"Torch.exp.0.forward", Call(Leaf("1.0"), Leaf("2.0"))};
  const std::vector<std::pair<std::string, std::string>> gradients = {
      {"Functional.cross_entropy.0.backward", backward(Leaf("1.0"), Leaf("NaN"))},
      {"Module.a.Linear.backward.0", backward(Leaf("1.0"), Leaf("Infinity"))},
      {"Module.a.Linear.parameters_grad.0", weights}};
  auto entries = gradients;
  entries.insert(entries.begin(), overflow);
  EXPECT_THAT(Origins(entries), testing::ElementsAre("Torch.exp.0.forward.output.0 computation inf"));
  entries[0] = fine;
  EXPECT_THAT(Origins(entries), testing::Contains("Functional.cross_entropy.0.backward.output.0 computation nan"))
      << "a gradient that overflows by itself is one";
  const std::pair<std::string, std::string> recomputed = {"Torch.exp.1.forward", Call(Leaf("1.0"), Leaf("NaN"))};
  entries.push_back(recomputed);
  EXPECT_THAT(Origins(entries), testing::Contains("Torch.exp.1.forward.output.0 computation nan"))
      << "what runs forward after it is another one";
}

TEST(OverflowTest, WhatTheOptimizerHasSpreadIsToldOnce) {
  const std::string nan = Leaf("NaN", true);
  const auto step = [](const std::string& weight, const std::string& other) {
    auto table = std::make_unique<StepTable>();
    DumpReader builder(table.get());
    for (const auto& [name, leaf] : {std::pair("Functional.linear.0.forward", weight), {"Torch.mm.0.forward", other}}) {
      EXPECT_TRUE(builder.AddEntry(name, Call(leaf, Leaf("1.0")), 0).ok());
    }
    return table;
  };
  const std::string fine = Leaf("1.0", true);
  // Of another dtype: nothing that was not finite before can be seen in it.
  std::string half = nan;
  half.replace(half.find("float32"), 7, "float16");
  NewOverflowOrigins origins;
  EXPECT_EQ(origins.In(0, *step(fine, fine)).size(), 0u);
  EXPECT_EQ(origins.In(1, *step(nan, fine)).size(), 1u);
  EXPECT_EQ(origins.In(2, *step(nan, half)).size(), 1u) << "another weight";
  for (uint32_t later = 3; later < 6; ++later) EXPECT_EQ(origins.In(later, *step(nan, half)).size(), 0u) << later;
  NewOverflowOrigins spread;
  const auto before = std::make_unique<StepTable>();
  DumpReader builder(before.get());
  ASSERT_TRUE(builder.AddEntry("Torch.exp.0.forward", Call(Leaf("9.0"), Leaf("Infinity")), 0).ok());
  EXPECT_EQ(spread.In(0, *before).size(), 1u);
  EXPECT_EQ(spread.In(1, *step(nan, half)).size(), 1u) << "the first of them stands for all";
  EXPECT_EQ(spread.In(2, *step(nan, half)).size(), 0u) << "and for the steps that follow";
}

TEST(OverflowTest, MasksAndUninitialisedMemoryRaiseNoAlarm) {
  const std::string mask = Leaf("-3.4028234663852886e+38", false, "-Infinity");
  const std::string infinite = R"({"type":"float","value":-Infinity})";
  EXPECT_THAT(Origins({{"Torch.where.0.forward", Call(mask, mask)},
                       {"Torch.empty.0.forward", Call("", Leaf("NaN"))},
                       {"Tensor.new_empty.0.forward", Call(Leaf("1.0"), Leaf("Infinity"))},
                       {"Distributed.recv.0.forward", Call(Leaf("NaN"), Leaf("NaN"))},
                       {"Tensor.masked_fill.0.forward", Call(Leaf("1.0") + "," + infinite, Leaf("-Infinity"))},
                       {"Functional.softmax.0.forward", Call(Leaf("-Infinity"), Leaf("1.0"))}}),
              testing::IsEmpty());
}

// A mask that the program makes, and memory that nothing was written to.
const Entries kMask = {
    {"Tensor.masked_fill.0.forward", Call(Leaf("1.0") + R"(,{"type":"float","value":-Infinity})", Leaf("-Infinity"))},
    {"Functional.softmax.0.forward", Call(Leaf("-Infinity"), Leaf("1.0"))}};
const Entries kMemory = {{"Torch.empty.0.forward", Call("", Leaf("NaN"))},
                         {"Tensor.copy_.0.forward", Call(Leaf("NaN") + "," + Leaf("1.0"), Leaf("1.0"))}};

Entries Joined(Entries first, const Entries& then) {
  first.insert(first.end(), then.begin(), then.end());
  return first;
}

TEST(OverflowTest, MasksAndUninitialisedMemoryAreNotReceived) {
  EXPECT_EQ(Received(kMask), "");
  EXPECT_EQ(Received(kMemory), "");
  EXPECT_EQ(Received({{"Distributed.recv.0.forward", Call("", Leaf("-Infinity"))},
                      {"Torch.add.0.forward", Call(Leaf("-Infinity"), Leaf("-Infinity"))}}),
            "")
      << "the mask of another rank";
  EXPECT_EQ(Received({{"Distributed.broadcast.0.forward", Call(Leaf("NaN"), Leaf("1.0"))}}), "")
      << "what it receives into";
}

TEST(OverflowTest, AnArgumentOfMinusInfinityIsAMask) {
  // Made by calls that are not recorded, as torch.full and triu, or kept in a buffer.
  const std::string mask = Leaf("-Infinity");
  EXPECT_THAT(Origins({{"Tensor.__add__.0.forward", Call(Leaf("1.0") + "," + mask, mask)},
                       {"Tensor.softmax.0.forward", Call(mask, Leaf("1.0"))},
                       {"Functional.softmax.1.forward", Call(Leaf("-Infinity", true), Leaf("1.0"))}}),
              testing::IsEmpty());
  EXPECT_THAT(Origins({{"Tensor.__add__.0.forward", Call(Leaf("1.0") + "," + mask, mask)},
                       {"Tensor.softmax.0.forward", Call(mask, Leaf("NaN"))}}),
              testing::ElementsAre("Tensor.softmax.0.forward.output.0 computation nan"))
      << "a row that is masked whole";
  EXPECT_THAT(Origins({{"Tensor.__add__.0.forward", Call(Leaf("1.0") + "," + Leaf("Infinity"), Leaf("Infinity"))}}),
              testing::ElementsAre("Tensor.__add__.0.forward.input.1 input inf"));
}

TEST(OverflowTest, WhatIsOverwrittenIsNoOrigin) {
  for (const char* name : {"Tensor.fill_.0.forward", "Tensor.__setitem__.0.forward", "Tensor.copy_.0.forward"}) {
    EXPECT_THAT(Origins({{name, Call(Leaf("NaN") + "," + Leaf("1.0"), Leaf("1.0"))}}), testing::IsEmpty()) << name;
    EXPECT_THAT(Origins({{name, Call(Leaf("1.0") + "," + Leaf("NaN"), Leaf("NaN"))}}),
                testing::ElementsAre(std::string(name) + ".input.1 input nan"));
  }
}

TEST(OverflowTest, WhatAnotherRankSentIsFound) {
  for (const char* name : {"Distributed.recv.0.forward", "Distributed.all_reduce.0.forward"}) {
    for (const char* value : {"NaN", "Infinity"}) {
      const Entries received = {{name, Call(Leaf("1.0"), Leaf(value))},
                                {"Torch.mul.0.forward", Call(Leaf(value), Leaf(value))}};
      for (const Entries& entries : {received, Joined(kMask, received), Joined(kMemory, received)}) {
        EXPECT_EQ(Received(entries), std::string(name) + ".output.0") << value;
      }
    }
  }
  EXPECT_EQ(Received({{"Distributed.all_reduce.0.forward", Call(Leaf("1.0"), Leaf("-Infinity"))}}),
            "Distributed.all_reduce.0.forward.output.0")
      << "a sum that overflows";
  EXPECT_EQ(Received(Joined(kMask, {{"Distributed.all_reduce.0.forward", Call(Leaf("-Infinity"), Leaf("-Infinity"))}})),
            "")
      << "it was given the mask";
}

TEST(OverflowTest, NanThatComesOfAMaskBeginsThere) {
  const std::string infinite = R"({"type":"float","value":-Infinity})";
  const std::string nan = Leaf("NaN");
  EXPECT_THAT(Origins({{"Tensor.masked_fill.0.forward", Call(Leaf("1.0") + "," + infinite, Leaf("-Infinity"))},
                       {"Functional.softmax.0.forward", Call(Leaf("-Infinity"), nan)},
                       {"Torch.matmul.0.forward", Call(nan, nan)}}),
              testing::ElementsAre("Functional.softmax.0.forward.output.0 computation nan"));
  EXPECT_THAT(Origins({{"Torch.exp.0.forward", Call(Leaf("9.0"), Leaf("Infinity"))},
                       {"Functional.softmax.0.forward", Call(Leaf("Infinity"), nan)}}),
              testing::ElementsAre("Torch.exp.0.forward.output.0 computation inf"));
}

TEST(OverflowTest, WhatLiesWhereAnOperationOnlyWritesIsNone) {
  const auto writes = [](const std::string& key, const std::string& output) {
    return R"({"input_args":[)" + Leaf("1.0") + R"(],"input_kwargs":{)" + key + ":" + Leaf("NaN") + R"(},"output":[)" +
           Leaf(output) + "]}";
  };
  EXPECT_THAT(Origins({{"Torch.mm.0.forward", writes(R"("out")", "2.0")}}), testing::IsEmpty());
  EXPECT_THAT(Origins({{"Torch.mm.0.forward", writes(R"("out")", "NaN")}}),
              testing::ElementsAre("Torch.mm.0.forward.output.0 computation nan"));
  EXPECT_THAT(Origins({{"Torch.mm.0.forward", writes(R"("outer")", "2.0")}}),
              testing::ElementsAre("Torch.mm.0.forward.input.outer input nan"));
}

TEST(OverflowTest, CountsTellWhatExtremesHide) {
  const std::string hidden =
      R"({"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"Max":1.0,"Min":0.0,"Mean":0.0,"Norm":1.0,)"
      R"("requires_grad":false,"extended":{"nan_count":0,"positive_inf_count":0,"negative_inf_count":2}})";
  EXPECT_THAT(Origins({{"Torch.log.0.forward", Call(Leaf("1.0"), hidden)}}),
              testing::ElementsAre("Torch.log.0.forward.output.0 computation inf"));
}

TEST(FirstOverflowTest, TheFirstIsOfTheEarliestStepAndBeforeTheMostCollectives) {
  const auto before = [](uint64_t collectives) {
    OverflowOrigin origin;
    origin.collectives_before = collectives;
    return origin;
  };
  FirstOverflow first;
  EXPECT_TRUE(first.Take(3, before(2)));
  EXPECT_FALSE(first.Take(3, before(2))) << "of two that are alike, the one that came first";
  EXPECT_FALSE(first.Take(4, before(0)));
  EXPECT_TRUE(first.Take(3, before(1)));
  EXPECT_TRUE(first.Take(2, before(9)));
}

}  // namespace
}  // namespace msprobe::server
