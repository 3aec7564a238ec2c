#include "server/format/storage/key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

const std::string kHash(16, '\xab');
const std::string kSession(16, '\x07');

v1::Rank Rank(v1::Rank::Kind kind, uint32_t number) {
  v1::Rank rank;
  rank.set_kind(kind);
  rank.set_number(number);
  return rank;
}

TEST(RankCode, KeepsKindAndNumberApart) {
  EXPECT_EQ(RankCode(Rank(v1::Rank::RANK, 3)), 3u);
  EXPECT_EQ(RankCode(Rank(v1::Rank::PROCESS, 3)), 0x80000003u);
  EXPECT_EQ(RankName(RankOfCode(3)), "rank3");
  EXPECT_EQ(RankName(RankOfCode(0x80001092u)), "proc4242");
  EXPECT_TRUE(RankFits(Rank(v1::Rank::RANK, 0x7fffffffu)));
  EXPECT_FALSE(RankFits(Rank(v1::Rank::RANK, 0x80000000u)));
}

TEST(RowKey, ReferenceBytes) {
  const RowKey key{1, 0x80001092u, 3, 4, 5, 6};
  EXPECT_EQ(Hex(key.Encode()), "000000018000109200000003000000040000000500000006");
  EXPECT_EQ(*RowKey::Decode(key.Encode()), key);
  EXPECT_EQ(key.ToString(), "run=1 rank=proc4242 step=3 token=4 epoch=5 block=6");
  EXPECT_EQ(RowKey::StepPrefix(1, 2, 3), RowKey({1, 2, 3, 4, 5, 6}).Encode().substr(0, 12));
}

TEST(RowKey, OrderOfBytesIsOrderOfNumbers) {
  const std::vector<RowKey> in_order = {{1, 2, 3, 4, 5, 6},           {1, 2, 3, 4, 5, 256}, {1, 2, 3, 4, 6, 0},
                                        {1, 2, 3, 5, 0, 0},           {1, 2, 4, 0, 0, 0},   {1, 2, 0x100, 0, 0, 0},
                                        {1, 0x80000000u, 0, 0, 0, 0}, {2, 0, 0, 0, 0, 0}};
  EXPECT_TRUE(std::is_sorted(in_order.begin(), in_order.end(),
                             [](const RowKey& a, const RowKey& b) { return a.Encode() < b.Encode(); }));
}

TEST(TileKey, ReferenceBytes) {
  const TileKey key{1, 2, 3, 4, 5};
  EXPECT_EQ(Hex(key.Encode()), "0000000100000002000000030000000400000005");
  EXPECT_EQ(key.Encode().substr(0, 16), TileKey::SetPrefix(1, 2, 3, 4));
  EXPECT_EQ(*TileKey::Decode(key.Encode()), key);
  EXPECT_EQ(key.ToString(), "run=1 rank=rank2 epoch=3 set=4 tile=5");
  EXPECT_EQ(MetaKeyToString(TileSetKey(1, 2, 3, 4)), "tile_set run=1 rank=rank2 epoch=3 set=4");
  EXPECT_EQ(MetaKeyToString(StepKey{1, 2, 3, 4}.Encode(MetaSpace::kTiled)), "tiled run=1 rank=rank2 step=3 epoch=4");
}

TEST(ChunkKey, ReferenceBytes) {
  const ChunkKey key{kHash, 1, 2, 3};
  EXPECT_EQ(Hex(key.Encode()), "abababababababababababababababab000000010000000200000003");
  EXPECT_EQ(*ChunkKey::Decode(key.Encode()), key);
  EXPECT_EQ(key.Encode().substr(0, 24), ChunkKey::Prefix(kHash, 1, 2));
}

TEST(StepKey, ReferenceBytes) {
  const StepKey key{1, 2, 3, 4};
  EXPECT_EQ(Hex(key.Encode()), "0600000001000000020000000300000004");
  EXPECT_EQ(*StepKey::Decode(key.Encode()), key);
}

TEST(MetaKeys, ReferenceBytesAndWords) {
  struct Case {
    std::string key, hex, words;
  };
  const std::string hash_hex = Hex(kHash), session_hex = Hex(kSession);
  for (const Case& c : std::vector<Case>{
           {ServerKey(), "01", "server"},
           {RunByNameKey("ab"), "026162", "run_by_name ab"},
           {RunKey(9), "0300000009", "run run=9"},
           {SessionKey(kSession), "04" + session_hex, "session " + session_hex},
           {DefinitionKey(1, 0x1122334455667788), "05000000011122334455667788", "definition run=1 id=1122334455667788"},
           {PayloadKey(kHash), "07" + hash_hex, "payload " + hash_hex},
           {PendingKey(kSession, kHash), Cat("08", session_hex, hash_hex),
            Cat("pending session=", session_hex, " hash=", hash_hex)},
           {ReferenceKey(1, kHash), "0900000001" + hash_hex, "reference run=1 hash=" + hash_hex},
           {ReferrerKey(kHash, 1), "0a" + hash_hex + "00000001", "referrer hash=" + hash_hex + " run=1"},
           {HoldKey(1, 2, 3, kHash), "1c000000010000000200000003" + hash_hex,
            "hold run=1 epoch=2 step=3 hash=" + hash_hex},
           {HolderKey(1, kHash, 2, 3), "1d00000001" + hash_hex + "0000000200000003",
            "holder run=1 hash=" + hash_hex + " epoch=2 step=3"},
           {FaultKey({1, 2, 3, 4}, 5), "0b0000000100000002000000030000000400000005",
            "fault run=1 rank=rank2 step=3 epoch=4 n=5"},
           {EpochKey(1, 2), "0c0000000100000002", "epoch run=1 epoch=2"},
           {JobKey(MetaSpace::kJob, 1, 2), "100000000100000002", "job run=1 job=2"},
           {JobKey(MetaSpace::kJobProgress, 1, 2), "110000000100000002", "job_progress run=1 job=2"},
           {JobPartKey(MetaSpace::kJobItem, 1, 2, 3), "12000000010000000200000003", "job_item run=1 job=2 item=3"},
           {JobLeaseKey(1, 2, 0xab), "13000000010000000200000000000000ab",
            "job_lease run=1 job=2 lease=00000000000000ab"},
           {JobPartKey(MetaSpace::kJobReturned, 1, 2, 3), "14000000010000000200000003",
            "job_returned run=1 job=2 item=3"},
           {JobPartKey(MetaSpace::kJobResult, 1, 2, 3), "15000000010000000200000003", "job_result run=1 job=2 order=3"},
           {JobPartKey(MetaSpace::kJobResultOf, 1, 2, 3), "16000000010000000200000003",
            "job_result_of run=1 job=2 item=3"}}) {
    EXPECT_EQ(Hex(c.key), c.hex);
    EXPECT_EQ(MetaKeyToString(c.key), c.words);
  }
  EXPECT_EQ(MetaKeyToString("\x7fxy"), "unknown 7f7879");
  EXPECT_EQ(MetaKeyToString(""), "unknown ");
  EXPECT_EQ(MetaKeyToString("\x04short"), "unknown 0473686f7274");
}

TEST(JobResultPlace, ReferenceBytes) {
  const JobResultPlace place{5, 0x1122334455667788};
  EXPECT_EQ(Hex(place.Encode()), "000000051122334455667788");
  EXPECT_EQ(*JobResultPlace::Decode(place.Encode()), place);
  EXPECT_EQ(JobResultPlace::Decode("abc").status().code(), absl::StatusCode::kDataLoss);
}

TEST(Keys, WrongLengthIsDataLossAndShowsTheBytes) {
  for (const absl::Status& status : {RowKey::Decode("abc").status(), TileKey::Decode("abc").status(),
                                     ChunkKey::Decode("abc").status(), StepKey::Decode("abc").status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("616263"), std::string::npos) << status;
  }
}

TEST(PrefixEnd, IsTheSmallestKeyBehindThePrefix) {
  EXPECT_EQ(PrefixEnd("ab"), "ac");
  EXPECT_EQ(PrefixEnd(std::string("a\xff", 2)), "b");
  EXPECT_EQ(PrefixEnd("\xff\xff"), "");
}

}  // namespace
}  // namespace msprobe::server
