#include "server/analysis/compare/communication.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/analysis/table/memory_table.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const std::string kLeaf =
    R"({"type":"torch.Tensor","dtype":"torch.float32","shape":[1],"Max":1.0,"Min":0.0,"Mean":0.0,"Norm":1.0})";

std::string Given(const std::string& arguments, const std::string& keywords = "") {
  return R"({"input_args":[)" + arguments + R"(],"input_kwargs":{)" + keywords + R"(},"output":[]})";
}

std::string Number(int number) { return R"({"type":"int","value":)" + std::to_string(number) + "}"; }

std::string Group(const std::string& ranks) {
  return R"({"type":"torch.ProcessGroup","group_ranks":)" + ranks + R"(,"group_id":"1"})";
}

std::string Message(const std::string& op, int peer) {
  return R"({"class_type":"torch.distributed.P2POp","tensor":)" + kLeaf + R"(,"op":")" + op + R"(","peer":)" +
         std::to_string(peer) + R"(,"tag":0,"group_id":"1"})";
}

std::vector<std::string> Channels(const std::string& name, const std::string& json, uint32_t rank) {
  const MemoryTable step({{name, json}});
  return ChannelsOf(step.table(), step.table().entries[0], rank);
}

TEST(ChannelsTest, TellWhoTalksToWhom) {
  EXPECT_THAT(Channels("Distributed.send.0.forward", Given(kLeaf + "," + Number(2)), 1), ElementsAre("1>2"));
  EXPECT_THAT(Channels("Distributed.irecv.3.forward", Given(kLeaf, R"("src":)" + Number(2)), 1), ElementsAre("2>1"));
  EXPECT_THAT(Channels("Distributed.recv.0.forward", Given(kLeaf), 1), IsEmpty()) << "from any rank";
  EXPECT_THAT(Channels("Distributed.all_reduce.0.forward", Given(kLeaf), 1), ElementsAre("world"));
  EXPECT_THAT(Channels("Distributed.all_reduce.0.forward", Given(kLeaf, R"("group":)" + Group("[0, 1]")), 1),
              ElementsAre("[0, 1]"));
  EXPECT_THAT(Channels("Distributed.broadcast.0.forward", Given(kLeaf + "," + Number(0) + "," + Group("[0, 3]")), 3),
              ElementsAre("[0, 3]"));
  EXPECT_THAT(Channels("Distributed.batch_isend_irecv.0.forward",
                       Given("[" + Message("isend", 0) + "," + Message("irecv", 5) + "]"), 1),
              ElementsAre("1>0", "5>1"));
  EXPECT_THAT(Channels("Torch.send.0.forward", Given(kLeaf + "," + Number(2)), 1), IsEmpty());
}

TEST(ChannelsTest, UsesAreCountedBeforeARecordAndInAll) {
  const std::string send = Given(kLeaf + "," + Number(1));
  const MemoryTable step({{"Distributed.send.0.forward", send},
                          {"Torch.add.0.forward", Given(kLeaf)},
                          {"Distributed.send.1.forward", send},
                          {"Distributed.all_reduce.0.forward", Given(kLeaf)}});
  const auto uses = UsesOfChannels(step.table(), 0, 1);
  EXPECT_EQ(uses.at("0>1").before, 1u);
  EXPECT_EQ(uses.at("0>1").all, 2u);
  EXPECT_EQ(uses.at("world").before, 0u);
}

RankDivergence Computed(uint64_t collectives, std::map<std::string, ChannelUse> uses) {
  return {Blame::kComputation, collectives, std::move(uses), {}};
}

RankDivergence Received(uint64_t collectives, std::map<std::string, ChannelUse> uses, std::string through) {
  return {Blame::kCommunication, collectives, std::move(uses), {std::move(through)}};
}

TEST(FirstAcrossRanksTest, WhatCameWrongIsExplainedByItsSender) {
  // Rank 0 talks three times to others, goes wrong, and sends to rank 1, which has done nothing before.
  const RankDivergence sender = Computed(3, {{"0>1", {0, 1}}, {"0>2", {3, 3}}});
  const RankDivergence receiver = Received(0, {{"0>1", {0, 1}}}, "0>1");
  EXPECT_EQ(FirstAcrossRanks({receiver, sender}), 1u);
  EXPECT_EQ(FirstAcrossRanks({sender, receiver}), 0u);
}

TEST(FirstAcrossRanksTest, AMessageThatWasSentBeforeIsNoExplanation) {
  const RankDivergence sender = Computed(3, {{"0>1", {1, 2}}});  // its first message was right
  const RankDivergence receiver = Received(0, {{"0>1", {0, 2}}}, "0>1");
  EXPECT_EQ(FirstAcrossRanks({sender, receiver}), 1u) << "it was changed on its way";
}

TEST(FirstAcrossRanksTest, ARankOutsideOfAGroupExplainsNothingInIt) {
  const RankDivergence outside = Computed(4, {{"[2, 3]", {0, 5}}});
  const RankDivergence inside = Received(1, {{"[0, 1]", {1, 2}}}, "[0, 1]");
  EXPECT_EQ(FirstAcrossRanks({outside, inside}), 1u);
}

TEST(FirstAcrossRanksTest, ThroughACollectiveAndAPipeline) {
  // 2 goes wrong before the second all_reduce of [1, 2]; 1 gets it there and passes it on to 0.
  const RankDivergence origin = Computed(7, {{"[1, 2]", {1, 3}}, {"x", {6, 6}}});
  const RankDivergence member = Received(1, {{"[1, 2]", {1, 3}}, {"1>0", {0, 1}}}, "[1, 2]");
  const RankDivergence last = Received(0, {{"1>0", {0, 1}}}, "1>0");
  EXPECT_EQ(FirstAcrossRanks({last, member, origin}), 2u);
  // Both members of the group got it wrong from nobody that is known: the first of them is told.
  EXPECT_EQ(FirstAcrossRanks({member, member}), 0u);
}

TEST(FirstAcrossRanksTest, WithoutChannelsTheFewestCommunicationsDecide) {
  EXPECT_EQ(FirstAcrossRanks({Computed(2, {}), Computed(1, {})}), 1u);
  RankDivergence communication = Computed(1, {});
  communication.blame = Blame::kCommunication;
  EXPECT_EQ(FirstAcrossRanks({communication, Computed(1, {})}), 1u);
}

}  // namespace
}  // namespace msprobe::server
