#include "server/analysis/divergence/replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/analysis/table/memory_table.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string Leaf(const std::string& checksum, double min = -1) {
  return Cat(R"({"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"Max":1.0,"Min":)", std::to_string(min),
             R"(,"Mean":0.0,"Norm":1.0,"requires_grad":false,"md5":")", checksum, R"("})");
}

std::string Module(const std::string& weight) {
  return Cat(R"({"input_args":[)", Leaf("x"), R"(],"parameters":{"weight":)", weight, R"(},"output":[)", Leaf("y"),
             "]}");
}

std::string Collective(const std::string& given, const std::string& got) {
  return Cat(R"({"input_args":[)", Leaf(given), R"(],"output":[)", Leaf(got), "," + Leaf(given), "]}");
}

constexpr char kModule[] = "Module.fc.Linear.forward.0";

// "parameter Module.fc.Linear.forward.0.parameters.weight 2|0,1": the odd ranks, and the others.
std::vector<std::string> Told(Replicas& replicas, const std::vector<std::pair<std::string, std::string>>& records) {
  std::vector<std::unique_ptr<MemoryTable>> tables;
  std::vector<RankStep> ranks;
  for (const auto& [name, json] : records) {
    tables.push_back(std::make_unique<MemoryTable>(MemoryTable({{name, json}})));
    ranks.push_back({static_cast<uint32_t>(ranks.size()), &tables.back()->table()});
  }
  const auto numbers = [](const std::vector<uint32_t>& of) {
    std::string text;
    for (uint32_t each : of) text += (text.empty() ? "" : ",") + std::to_string(each);
    return text;
  };
  std::vector<std::string> told;
  for (const ReplicaDifference& found : replicas.In(ranks)) {
    told.push_back(Cat(found.kind == ReplicaKind::kParameter ? "parameter " : "collective ",
                       ranks[found.table].table->rows[found.row].name, " ", numbers(found.odd), "|",
                       numbers(found.others)));
  }
  return told;
}

std::vector<std::string> OfWeights(Replicas& replicas, const std::vector<std::string>& weights, double min = -1) {
  std::vector<std::pair<std::string, std::string>> records;
  for (const std::string& weight : weights) records.emplace_back(kModule, Module(Leaf(weight, min)));
  return Told(replicas, records);
}

constexpr char kWeight[] = "parameter Module.fc.Linear.forward.0.parameters.weight ";

TEST(ReplicasTest, AMinorityIsOddInTheFirstStep) {
  Replicas replicas;
  EXPECT_THAT(OfWeights(replicas, {"a", "a", "b"}), ElementsAre(Cat(kWeight, "2|0,1")));
  EXPECT_THAT(OfWeights(replicas, {"c", "c", "d"}), IsEmpty()) << "told of once";
}

TEST(ReplicasTest, ShardsAreNotReplicas) {
  Replicas replicas;
  EXPECT_THAT(OfWeights(replicas, {"a", "b", "c", "d"}), IsEmpty());
  EXPECT_THAT(OfWeights(replicas, {"e", "f", "g", "h"}), IsEmpty());
}

TEST(ReplicasTest, WhatWasAlikeStaysAlike) {
  Replicas replicas;
  EXPECT_THAT(OfWeights(replicas, {"a", "a"}), IsEmpty());
  EXPECT_THAT(OfWeights(replicas, {"b", "c"}), ElementsAre(Cat(kWeight, "0,1|"))) << "of two nobody knows which";
}

TEST(ReplicasTest, ShardsThatAreReplicatedAreHeldToTheirOwnGroup) {
  Replicas replicas;
  EXPECT_THAT(OfWeights(replicas, {"a", "b", "a", "b", "a", "b"}), IsEmpty());
  EXPECT_THAT(OfWeights(replicas, {"c", "d", "c", "d", "c", "e"}), ElementsAre(Cat(kWeight, "5|1,3")));
}

TEST(ReplicasTest, ANewBiasOfZerosTellsNothing) {
  Replicas replicas;
  EXPECT_THAT(OfWeights(replicas, {"0", "0"}, 1), IsEmpty());
  EXPECT_THAT(OfWeights(replicas, {"a", "b"}), IsEmpty());
}

TEST(ReplicasTest, WhatACollectiveGivesIsAlikeInItsGroup) {
  Replicas replicas;
  constexpr char kReduce[] = "Distributed.all_reduce.0.forward";
  EXPECT_THAT(Told(replicas, {{kReduce, Collective("a", "s")}, {kReduce, Collective("a", "s")}}), IsEmpty());
  EXPECT_THAT(Told(replicas,
                   {{kReduce, Collective("a", "s")}, {kReduce, Collective("a", "t")}, {kReduce, Collective("a", "s")}}),
              ElementsAre("collective Distributed.all_reduce.0.forward.output.0 1|0,2"));
  constexpr char kGather[] = "Distributed.all_gather_into_tensor.0.forward";
  EXPECT_THAT(Told(replicas, {{kGather, Collective("a", "s")}, {kGather, Collective("b", "s")}}), IsEmpty())
      << "each rank's own part differs";
}

}  // namespace
}  // namespace msprobe::server
