#include "server/analysis/checkpoint/checkpoint_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

using ::testing::ElementsAre;
using ::testing::FieldsAre;

Checkpoint Holding(const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors) {
  Checkpoint checkpoint;
  uint64_t offset = 0;
  for (const auto& [name, shape] : tensors) {
    const LogicalTensor tensor = PlainTensor(v1::DTYPE_FLOAT32, shape, "/f", offset);
    offset += tensor.elements() * 4;
    checkpoint.tensors.emplace(name, tensor);
  }
  return checkpoint;
}

TEST(CheckpointPairs, LooksThroughWrappers) {
  Checkpoint target = Holding({{"module._orig_mod.fc.weight", {2}}, {"extra", {1}}});
  Checkpoint golden = Holding({{"fc.weight", {2}}, {"lost", {1}}});
  EXPECT_THAT(PairCheckpoints(target, golden, {}),
              ElementsAre(FieldsAre("extra", "", ""), FieldsAre("", "lost", ""),
                          FieldsAre("module._orig_mod.fc.weight", "fc.weight", "")));
}

TEST(CheckpointPairs, RenamesByBeginning) {
  Checkpoint target = Holding({{"net.fc.weight", {2}}});
  Checkpoint golden = Holding({{"policy.fc.weight", {2}}});
  EXPECT_THAT(PairCheckpoints(target, golden, {{"net.", "policy."}}),
              ElementsAre(FieldsAre("policy.fc.weight", "policy.fc.weight", "")));
}

TEST(CheckpointPairs, FindsATensorByOneThatSharesItsStorage) {
  Checkpoint target = Holding({{"model.embed_tokens.weight", {4, 2}}});
  target.tensors["lm_head.weight"] = target.tensors["model.embed_tokens.weight"];
  Checkpoint golden = Holding({{"model.embed_tokens.weight", {4, 2}}});
  EXPECT_THAT(PairCheckpoints(target, golden, {}),
              ElementsAre(FieldsAre("lm_head.weight", "model.embed_tokens.weight", "tied to model.embed_tokens.weight"),
                          FieldsAre("model.embed_tokens.weight", "model.embed_tokens.weight", "")));
}

TEST(CheckpointPairs, TakesQueriesKeysAndValuesApart) {
  Checkpoint target = Holding({{"model.layers.0.self_attn.qkv_proj.weight", {16, 3}}});
  target.attention = AttentionShape{.heads = 4, .groups = 2, .head_size = 2};
  Checkpoint golden = Holding({{"model.layers.0.self_attn.q_proj.weight", {8, 3}},
                               {"model.layers.0.self_attn.k_proj.weight", {4, 3}},
                               {"model.layers.0.self_attn.v_proj.weight", {4, 3}}});
  EXPECT_EQ(PairCheckpoints(target, golden, {}).size(), 3);
  EXPECT_EQ(target.tensors.at("model.layers.0.self_attn.v_proj.weight").pieces[0].offset, 12 * 3 * 4);
}

}  // namespace
}  // namespace msprobe::server
