#include "server/analysis/collectives/collective_join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/analysis/collectives/hang.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

using Kind = CommunicationCall::Kind;

// "all_reduce[4]@7": operation, shape, and the line of the program, 1 where none is given.
CommunicationCall Collective(std::string_view text) {
  CommunicationCall call;
  const size_t at = text.find('@');
  call.stack = at == std::string_view::npos ? 1 : std::stoul(std::string(text.substr(at + 1)));
  text = text.substr(0, at);
  const size_t bracket = std::min(text.find('['), text.size());
  call.operation = std::string(text.substr(0, bracket));
  call.shape = std::string(text.substr(bracket));
  call.dtype = "torch.float32";
  call.group = "0 default_pg";
  call.members = {0, 1, 2, 3};
  call.ended = true;
  return call;
}

CommunicationCall Message(Kind kind, int64_t peer, uint64_t bytes = 16) {
  CommunicationCall call = Collective(kind == Kind::kSend ? "send" : "recv");
  call.kind = kind;
  call.peer = peer;
  call.bytes = bytes;
  return call;
}

RankCalls RankWith(uint32_t rank, std::vector<CommunicationCall> calls, bool ended = true) {
  RankCalls of{.rank = rank, .ended = ended, .calls = std::move(calls)};
  std::map<Kind, uint32_t> counts;
  int64_t clock = 100;
  for (CommunicationCall& call : of.calls) {
    call.rank = rank;
    call.sequence = counts[call.kind]++;
    call.began_unix_us = clock++;
    call.op = Cat("Distributed.", call.operation, ".", call.sequence, ".forward");
  }
  return of;
}

RankCalls Rank(uint32_t rank, const std::vector<std::string>& calls, bool ended = true) {
  std::vector<CommunicationCall> made;
  for (const std::string& each : calls) made.push_back(Collective(each));
  return RankWith(rank, std::move(made), ended);
}

// "missed 3|0,1,2: broadcast / all_reduce": odd ranks, the others, the call of the odd one and theirs.
std::vector<std::string> Told(const std::vector<RankCalls>& ranks) {
  constexpr std::string_view kNames[] = {"", "missed", "extra", "reordered", "differs"};
  const auto numbers = [](const std::vector<uint32_t>& of) {
    std::string text;
    for (uint32_t each : of) text += Cat(text.empty() ? "" : ",", each);
    return text;
  };
  const auto name = [](const CommunicationCall* call) {
    return call == nullptr ? std::string("-") : Cat(call->operation, call->shape, "@", call->stack);
  };
  std::vector<std::string> told;
  const CollectiveJoin join(ranks);
  for (const CollectiveMismatch& found : join.mismatches()) {
    std::string differing;
    for (const std::string& field : found.differing) differing += " " + field;
    told.push_back(Cat(kNames[static_cast<size_t>(found.kind)], " ", numbers(found.odd), "|", numbers(found.others),
                       ": ", name(found.of_odd), " / ", name(found.of_others), differing));
  }
  return told;
}

TEST(CollectiveJoinTest, RanksThatDoTheSameFit) {
  const std::vector<std::string> calls = {"all_reduce[4]", "broadcast[2]@2", "all_reduce[4]"};
  EXPECT_THAT(Told({Rank(0, calls), Rank(1, calls), Rank(2, calls)}), IsEmpty());
  EXPECT_THAT(Told({}), IsEmpty());
}

TEST(CollectiveJoinTest, OneThatWasMissedIsNamedByItsLineWhereAllLookAlike) {
  const std::vector<std::string> all = {"all_reduce[4]@1", "all_reduce[4]@2", "all_reduce[4]@3"};
  EXPECT_THAT(Told({Rank(0, all), Rank(1, all), Rank(2, all), Rank(3, {"all_reduce[4]@1", "all_reduce[4]@3"})}),
              ElementsAre("missed 3|0,1,2: all_reduce[4]@3 / all_reduce[4]@2"));
}

TEST(CollectiveJoinTest, RanksMayCallFromDifferentLines) {
  EXPECT_THAT(Told({Rank(0, {"broadcast[4]@1", "gather[1]@3"}), Rank(1, {"broadcast[4]@2", "gather[1]@4"})}),
              IsEmpty());
}

TEST(CollectiveJoinTest, OneIsLeftOutAndAnotherMade) {
  const std::vector<std::string> all = {"all_reduce[4]@1", "all_reduce[4]@2"};
  EXPECT_THAT(Told({Rank(0, all), Rank(1, all), Rank(2, {"all_reduce[4]@2", "all_reduce[4]@3"})}),
              ElementsAre("missed 2|0,1: all_reduce[4]@2 / all_reduce[4]@1", "extra 2|0,1: all_reduce[4]@3 / -"));
}

TEST(CollectiveJoinTest, RanksWithTheSameFaultAreNamedTogether) {
  const std::vector<std::string> all = {"all_reduce[4]", "broadcast[4]"};
  const std::vector<std::string> fewer = {"broadcast[4]"};
  EXPECT_THAT(Told({Rank(0, all), Rank(1, fewer), Rank(2, all), Rank(3, fewer), Rank(4, all)}),
              ElementsAre("missed 1,3|0,2,4: broadcast[4]@1 / all_reduce[4]@1"));
}

TEST(CollectiveJoinTest, OneRankDoesMore) {
  const std::vector<std::string> all = {"all_reduce[4]", "broadcast[4]"};
  EXPECT_THAT(Told({Rank(0, all), Rank(1, all), Rank(2, {"all_reduce[4]", "gather[1]", "broadcast[4]"})}),
              ElementsAre("extra 2|0,1: gather[1]@1 / broadcast[4]@1"));
}

TEST(CollectiveJoinTest, TwoThatChangedPlacesAreOneFault) {
  const std::vector<std::string> all = {"all_reduce[4]", "broadcast[4]", "gather[1]"};
  EXPECT_THAT(Told({Rank(0, all), Rank(1, all), Rank(2, {"broadcast[4]", "all_reduce[4]", "gather[1]"})}),
              ElementsAre("reordered 2|0,1: all_reduce[4]@1 / all_reduce[4]@1"));
}

TEST(CollectiveJoinTest, OtherArgumentsAndOtherOperations) {
  const std::vector<std::string> all = {"all_reduce[4]", "broadcast[4]"};
  EXPECT_THAT(Told({Rank(0, all), Rank(1, all), Rank(2, {"all_reduce[5]", "broadcast[4]"})}),
              ElementsAre("differs 2|0,1: all_reduce[5]@1 / all_reduce[4]@1 shape"));
  EXPECT_THAT(Told({Rank(0, all), Rank(1, all), Rank(2, {"all_reduce[4]", "barrier"})}),
              ElementsAre("differs 2|0,1: barrier@1 / broadcast[4]@1 operation"));
  // Ranks may give parts of different sizes.
  EXPECT_THAT(Told({Rank(0, {"all_to_all[4]"}), Rank(1, {"all_to_all[6]"})}), IsEmpty());
}

TEST(CollectiveJoinTest, WhatMayStillComeIsNotMissed) {
  const std::vector<std::string> all = {"all_reduce[4]", "broadcast[4]"};
  const std::vector<std::string> fewer = {"all_reduce[4]"};
  EXPECT_THAT(Told({Rank(0, all), Rank(1, fewer, false)}), IsEmpty());
  EXPECT_THAT(Told({Rank(0, all), Rank(1, std::vector<std::string>(), false)}), IsEmpty());
  EXPECT_THAT(Told({Rank(0, fewer, false), Rank(1, all, false), Rank(2, fewer, false)}), IsEmpty());
  EXPECT_THAT(Told({Rank(0, all), Rank(1, all), Rank(2, fewer)}), ElementsAre("missed 2|0,1: - / broadcast[4]@1"));
  // It has gone on to something else.
  EXPECT_THAT(Told({Rank(0, all), Rank(1, all), Rank(2, {"broadcast[4]"}, false)}),
              ElementsAre("missed 2|0,1: broadcast[4]@1 / all_reduce[4]@1"));
}

TEST(CollectiveJoinTest, LongListsAreAlignedWindowByWindow) {
  std::vector<std::string> all;
  std::vector<std::string> odd;
  for (int i = 0; i < 800; ++i) {
    all.push_back(Cat("all_reduce[", i % 7, "]@", i % 11));
    // Every call from another line: no window begins with calls that are the same.
    if (i != 100 && i != 600) odd.push_back(Cat("all_reduce[", i % 7, "]@", 20 + i % 11));
  }
  const std::vector<std::string> told = Told({Rank(0, all), Rank(1, all), Rank(2, odd)});
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_THAT(told[0], testing::StartsWith("missed 2|0,1: "));
  EXPECT_THAT(told[1], testing::StartsWith("missed 2|0,1: "));
}

TEST(CollectiveJoinTest, MessagesAreJoinedByTheirEnds) {
  const auto sends = [](int64_t peer, uint64_t bytes = 16) { return Message(Kind::kSend, peer, bytes); };
  const auto receives = [](int64_t peer, uint64_t bytes = 16) { return Message(Kind::kReceive, peer, bytes); };
  EXPECT_THAT(Told({RankWith(0, {sends(1), receives(1)}), RankWith(1, {receives(0), sends(0)})}), IsEmpty());
  EXPECT_THAT(Told({RankWith(0, {sends(1, 16)}), RankWith(1, {receives(0, 32)})}),
              ElementsAre("differs 1|0: recv@1 / send@1 shape"));
  EXPECT_THAT(Told({RankWith(0, {sends(1)}), Rank(1, std::vector<std::string>())}),
              ElementsAre("missed 1|0: - / send@1"));
  EXPECT_THAT(Told({RankWith(0, {sends(1)}), Rank(1, std::vector<std::string>(), false)}), IsEmpty());
  EXPECT_THAT(Told({RankWith(0, {sends(1)}), RankWith(1, {receives(CommunicationCall::kAnyPeer)})}), IsEmpty());
}

// "0>1,2 1>": who waits for whom; then the unknown, the cycle and the blamed.
std::string Waits(const std::vector<RankCalls>& calls) {
  std::map<uint32_t, CollectiveJoin> joins;
  joins.emplace(0, calls);
  std::vector<StandingRank> ranks;
  for (const RankCalls& of : calls) {
    StandingRank& standing = ranks.emplace_back();
    standing.rank = of.rank;
    for (const CommunicationCall& call : of.calls) {
      if (!call.ended) standing.calls.push_back(&call);
    }
  }
  const Hang hang = ExplainHang(joins, ranks);
  const auto numbers = [](const std::vector<uint32_t>& of) {
    std::string text;
    for (uint32_t each : of) text += Cat(text.empty() ? "" : ",", each);
    return text;
  };
  std::string told;
  for (const StandingRank& of : ranks) told += Cat(of.rank, ">", numbers(of.waits_for), " ");
  return Cat(told, "unknown ", numbers(hang.unknown), " cycle ", numbers(hang.cycle), " blamed ", numbers(hang.blamed));
}

// Its last call has not ended.
RankCalls Standing(RankCalls of) {
  of.ended = false;
  of.calls.back().ended = false;
  return of;
}

TEST(HangTest, OneIsElsewhere) {
  const std::vector<std::string> all = {"all_reduce[4]", "broadcast[4]"};
  const auto standing = [&](uint32_t rank) { return Standing(Rank(rank, all)); };
  const RankCalls behind = Rank(3, {"all_reduce[4]"}, false);
  EXPECT_EQ(Waits({standing(0), standing(1), standing(2), behind}), "0>3 1>3 2>3 3> unknown  cycle  blamed 3");
}

TEST(HangTest, EachWaitsForTheOther) {
  const std::vector<std::string> all = {"all_reduce[4]"};
  EXPECT_EQ(
      Waits({Standing(Rank(0, all)), Standing(Rank(1, all)), Standing(Rank(2, all)), Standing(Rank(3, {"barrier"}))}),
      "0>3 1>3 2>3 3>0,1,2 unknown  cycle 0,3 blamed ");
  const auto receives = [](uint32_t rank, int64_t peer) {
    return Standing(RankWith(rank, {Message(Kind::kReceive, peer)}));
  };
  EXPECT_EQ(Waits({receives(0, 1), receives(1, 2), receives(2, 0)}), "0>1 1>2 2>0 unknown  cycle 0,1,2 blamed ");
}

TEST(HangTest, MembersThatNobodyCaptured) {
  EXPECT_EQ(Waits({Standing(Rank(0, {"all_reduce[4]"}))}), "0> unknown 1,2,3 cycle  blamed ");
}

TEST(HangTest, WhoHasArrivedIsNotWaitedFor) {
  const std::vector<std::string> all = {"all_reduce[4]"};
  EXPECT_EQ(Waits({Standing(Rank(0, all)), Standing(Rank(1, all)), Rank(2, all, false), Standing(Rank(3, all))}),
            "0> 1> 2> 3> unknown  cycle  blamed ");
}

v1::Value Text(const std::string& text) {
  v1::Value value;
  value.set_text(text);
  return value;
}

v1::Value Integer(int64_t integer) {
  v1::Value value;
  value.set_integer(integer);
  return value;
}

void Put(v1::Value& dict, const std::string& key, const v1::Value& value) {
  v1::Value::Entry& entry = *dict.mutable_dict()->add_entries();
  entry.set_key(key);
  *entry.mutable_value() = value;
}

TEST(CommunicationCallTest, IsReadFromItsRecord) {
  v1::Value field;
  Put(field, "group", Text("3 mesh_tp"));
  Put(field, "ranks", Text("0-3"));
  Put(field, "sequence", Integer(5));
  Put(field, "bytes", Integer(64));
  Put(field, "dtype", Text("torch.float32"));
  v1::Value shape;
  for (int64_t size : {2, 8}) *shape.mutable_list()->add_items() = Integer(size);
  Put(field, "shape", shape);
  Put(field, "root", Integer(2));
  v1::Record record;
  record.set_full_name("Distributed.broadcast.7.forward");
  record.set_step(3);
  record.mutable_rank()->set_number(1);
  record.set_flags(v1::FRAGMENT_ENTER);
  EXPECT_THAT(CallsOf(record, 0), IsEmpty());
  Put(*record.mutable_fields(), "communication", field);
  const std::vector<CommunicationCall> calls = CallsOf(record, 9);
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_EQ(calls[0].operation, "broadcast");
  EXPECT_EQ(calls[0].shape, "[2, 8]");
  EXPECT_THAT(calls[0].members, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(calls[0].sequence, 5u);
  EXPECT_EQ(calls[0].root, 2);
  EXPECT_EQ(calls[0].stack, 9u);
  EXPECT_FALSE(calls[0].ended);
}

TEST(CommunicationCallTest, RanksOfAText) {
  EXPECT_THAT(RanksIn("0-3,8-14:2,20"), ElementsAre(0, 1, 2, 3, 8, 10, 12, 14, 20));
  EXPECT_THAT(RanksIn("7"), ElementsAre(7));
  for (const char* wrong : {"", "a", "3-1", "0-4:0", "0-4294967295", "1,,2", "1 2"}) {
    EXPECT_THAT(RanksIn(wrong), IsEmpty()) << wrong;
  }
}

}  // namespace
}  // namespace msprobe::server
