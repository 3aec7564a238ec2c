#include "server/analysis/compare/train_infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/analysis/table/memory_table.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::Pair;

using Entries = std::vector<std::pair<std::string, std::string>>;

TensorDescription Float32(std::vector<int64_t> shape) {
  TensorDescription description;
  description.shape = std::move(shape);
  return description;
}

std::string Output(const std::string& shape, const std::string& max, const std::string& data_name = "") {
  return R"({"input_args":[],"output":[{"type":"torch.Tensor","dtype":"torch.float32","shape":)" + shape +
         R"(,"Max":)" + max + R"(,"Min":-1.0,"Mean":0.5,"Norm":2.0)" +
         (data_name.empty() ? "" : R"(,"data_name":")" + data_name + "\"") + "}]}";
}

const char kTraining[] = "Module._fsdp_wrapped_module.model.layers.3._fsdp_wrapped_module.self_attn.";
const char kInference[] = "Module.model.layers.3.self_attn.";

std::vector<std::pair<std::string, std::string>> NamesOf(const TrainInferSides& sides) {
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& [a, b] : sides.match.pairs) {
    const std::vector<Row>& golden = sides.inference->table().rows;
    names.emplace_back(sides.training->table().rows[static_cast<size_t>(a)].name,
                       b == kNoRow ? "" : golden[static_cast<size_t>(b)].name);
  }
  return names;
}

TrainInferSides Align(std::unique_ptr<MemoryTable> training, const Entries& inference,
                      TrainingBackend backend = TrainingBackend::kFsdp) {
  return AlignTrainInfer(std::move(training), std::make_unique<MemoryTable>(inference), backend);
}

TEST(TrainInferTest, WhatTheEngineFusesIsOneRow) {
  const std::string at = kTraining;
  auto training = std::make_unique<MemoryTable>(Entries{
      {at + "q_proj.Linear.forward.0", Output("[1, 2, 2]", "1.0", at + "q_proj.Linear.forward.0.output.0.pt")},
      {at + "k_proj.Linear.forward.0", Output("[1, 2, 2]", "3.0", at + "k_proj.Linear.forward.0.output.0.pt")},
      {at + "v_proj.Linear.forward.0", Output("[1, 2, 2]", "2.0", at + "v_proj.Linear.forward.0.output.0.pt")}});
  training->AddContent(at + "q_proj.Linear.forward.0.output.0.pt", Float32({1, 2, 2}), BytesOf<float>({1, 2, 7, 8}));
  training->AddContent(at + "k_proj.Linear.forward.0.output.0.pt", Float32({1, 2, 2}), BytesOf<float>({3, 4, 9, 10}));
  training->AddContent(at + "v_proj.Linear.forward.0.output.0.pt", Float32({1, 2, 2}), BytesOf<float>({5, 6, 11, 12}));
  const TrainInferSides sides =
      Align(std::move(training),
            {{std::string(kInference) + "qkv_proj.QKVParallelLinear.forward.0", Output("[2, 6]", "3.0")}});
  ASSERT_EQ(sides.match.pairs.size(), 1u);
  const Row& row = sides.training->table().rows[0];
  EXPECT_EQ(row.name, at + "q_proj.Linear.forward.0.output.0;  " + at + "k_proj.Linear.forward.0.output.0;  " + at +
                          "v_proj.Linear.forward.0.output.0");
  EXPECT_EQ(row.statistics[0].number(), 3.0);
  EXPECT_EQ(row.statistics[2].view(), "0.5;0.5;0.5");
  auto content = sides.training->OpenTensor(row);
  ASSERT_TRUE(content.ok()) << content.status();
  EXPECT_THAT((*content)->description().shape, ElementsAre(2, 6));
  std::string bytes;
  ASSERT_TRUE((*content)
                  ->Read([&](std::string_view chunk) {
                    bytes += chunk;
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(bytes, BytesOf<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
}

TEST(TrainInferTest, WhatLiesBehindTheBackwardPassOfTheModelIsLeftOut) {
  const TrainInferSides sides =
      Align(std::make_unique<MemoryTable>(Entries{{"Module.model.norm.Norm.forward.0", Output("[2]", "1.0")},
                                                  {"Module.model.Qwen2Model.backward.0", Output("[2]", "1.0")},
                                                  {"Module.model.late.Norm.backward.0", Output("[2]", "1.0")},
                                                  {"Module.model.embed.Embedding.forward.1", Output("[2]", "1.0")}}),
            {});
  EXPECT_THAT(NamesOf(sides), ElementsAre(Pair("Module.model.norm.Norm.forward.0.output.0", ""),
                                          Pair("Module.model.embed.Embedding.forward.1.output.0", "")));
}

TEST(TrainInferTest, RowsOfOneSideStandWhereThatSideRanThem) {
  const TrainInferSides sides = Align(
      std::make_unique<MemoryTable>(Entries{{"Module._fsdp_wrapped_module.model.a.A.forward.0", Output("[2]", "1.0")},
                                            {"Module._fsdp_wrapped_module.model.b.B.forward.0", Output("[2]", "1.0")}}),
      {{"Module.model.new.N.forward.0", Output("[2]", "1.0")}, {"Module.model.b.X.forward.0", Output("[2]", "1.0")}});
  EXPECT_THAT(NamesOf(sides), ElementsAre(Pair("Module._fsdp_wrapped_module.model.a.A.forward.0.output.0", ""),
                                          Pair("N/A", "Module.model.new.N.forward.0.output.0"),
                                          Pair("Module._fsdp_wrapped_module.model.b.B.forward.0.output.0",
                                               "Module.model.b.X.forward.0.output.0")));
}

TEST(TrainInferTest, OrdersThatContradictEachOtherEnd) {
  const TrainInferSides sides = Align(
      std::make_unique<MemoryTable>(Entries{{"Module._fsdp_wrapped_module.model.a.A.forward.0", Output("[2]", "1.0")},
                                            {"Module._fsdp_wrapped_module.model.b.B.forward.0", Output("[2]", "1.0")}}),
      {{"Module._fsdp_wrapped_module.model.b.B.forward.0", Output("[2]", "1.0")},
       {"Module._fsdp_wrapped_module.model.a.A.forward.0", Output("[2]", "1.0")}});
  EXPECT_EQ(sides.match.pairs.size(), 2u);
  EXPECT_EQ(NamesOf(sides)[0].first, "Module._fsdp_wrapped_module.model.a.A.forward.0.output.0");
}

}  // namespace
}  // namespace msprobe::server
