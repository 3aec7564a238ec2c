#include "agent/core/transport/packing/packer.h"

#include <unistd.h>

#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "agent/core/content_hash.h"
#include "agent/core/queue/fragment_digest.h"
#include "agent/core/queue/fragment_queue.h"
#include "agent/core/queue/leaf_flags.h"
#include "agent/core/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

using ::testing::ElementsAre;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class BytesPayload : public Payload {
 public:
  explicit BytesPayload(std::string content) : content_(std::move(content)) {}
  std::span<std::byte> bytes() override { return std::as_writable_bytes(std::span(content_)); }

 private:
  std::string content_;
};

Node Make(NodeKind kind) {
  Node node;
  node.kind = kind;
  node.key = "k";
  return node;
}

Structure Of(const std::string& name, const std::vector<NodeKind>& kinds) {
  Structure structure;
  structure.name = name;
  structure.fields.kind = NodeKind::kDict;
  for (NodeKind kind : kinds) structure.fields.children.push_back(Make(kind));
  return structure;
}

v1::Batch Parse(const PackedBatch& packed) {
  v1::AgentMessage message;
  EXPECT_TRUE(message.ParseFromString(packed.bytes));
  return message.batch();
}

class PackerTest : public ::testing::Test {
 protected:
  PackerTest() : packer_("0123456789abcdef", &dictionary_) {
    tensor_ = dictionary_.DefineStructure(Of("t", {NodeKind::kTensor}));
  }

  bool Add(Fragment fragment, std::vector<Leaf> leaves) {
    fragment.leaves = leaves;
    return packer_.Add(fragment, leaves);
  }
  bool AddLeaf(const Leaf& leaf) {
    Fragment fragment;
    fragment.structure = tensor_;
    return Add(fragment, {leaf});
  }
  v1::Block OnlyBlock() {
    const v1::Batch batch = Parse(packer_.Cut(0));
    EXPECT_EQ(batch.items_size(), 1);
    return batch.items(0).block();
  }

  Dictionary dictionary_;
  Packer packer_;
  StructureId tensor_;
};

TEST_F(PackerTest, ScalarsGoToTheirColumnsInOrder) {
  const StructureId structure =
      dictionary_.DefineStructure(Of("s", {NodeKind::kInteger, NodeKind::kString, NodeKind::kBoolean, NodeKind::kFloat,
                                           NodeKind::kNone, NodeKind::kJson, NodeKind::kInteger}));
  const std::array<int64_t, 2> integers = {-7, INT64_MIN};
  const std::array<double, 1> floats = {kInf};
  const std::array<bool, 1> booleans = {true};
  const std::array<std::string_view, 2> strings = {"text", "bad\xFF"};
  Fragment fragment;
  fragment.structure = structure;
  fragment.integers = integers;
  fragment.floats = floats;
  fragment.booleans = booleans;
  fragment.strings = strings;
  ASSERT_TRUE(Add(fragment, {}));
  const v1::Block block = OnlyBlock();
  EXPECT_THAT(block.integers(), ElementsAre(-7, INT64_MIN));
  EXPECT_THAT(block.floats(), ElementsAre(kInf));
  EXPECT_THAT(block.booleans(), ElementsAre(true));
  EXPECT_THAT(block.strings(), ElementsAre("text", "bad\xEF\xBF\xBD"));
}

// Of what a killed process left in a file, say.
TEST_F(PackerTest, AFragmentThatChangedSinceItWasCapturedIsAGap) {
  packer_.Verify();
  Leaf leaf;
  leaf.has_statistics = true;
  leaf.max = 2;
  Fragment fragment;
  fragment.structure = tensor_;
  fragment.step = 7;
  fragment.leaves = std::span(&leaf, 1);
  fragment.digest = DigestAtCapture(fragment, dictionary_);
  EXPECT_TRUE(Add(fragment, {leaf}));
  leaf.max = 3;
  EXPECT_FALSE(Add(fragment, {leaf}));
  const v1::Batch batch = Parse(packer_.Cut(0));
  ASSERT_EQ(batch.items_size(), 2);
  EXPECT_EQ(batch.items(0).block().digest(0), fragment.digest);
  EXPECT_EQ(batch.items(1).marker().gap().step(), 7);
}

TEST_F(PackerTest, AServerThatDoesNotKnowDigestsGetsTheBatchWithoutThem) {
  ASSERT_TRUE(AddLeaf(Leaf()));
  const PackedBatch packed = packer_.Cut(0);
  v1::AgentMessage message, plain;
  ASSERT_TRUE(message.ParseFromString(packed.bytes) && plain.ParseFromString(Plainer(packed.bytes, {})));
  ASSERT_EQ(message.batch().items(0).block().digest_size(), 1);
  message.mutable_batch()->mutable_items(0)->mutable_block()->clear_digest();
  EXPECT_EQ(plain.SerializeAsString(), message.SerializeAsString());
}

TEST_F(PackerTest, EdgesAreColumnsOfAServerThatKnowsThem) {
  Leaf leaf;
  ASSERT_TRUE(AddLeaf(leaf));
  EXPECT_EQ(Parse(packer_.Cut(0)).items(0).block().edge_size(), 0) << "nothing is known";
  leaf.edge = {.kind = EdgeKind::kOutside};
  ASSERT_TRUE(AddLeaf(leaf));
  leaf.edge = {.kind = EdgeKind::kView, .leaf = 2, .distance = -3};
  ASSERT_TRUE(AddLeaf(leaf));
  const PackedBatch packed = packer_.Cut(0);
  v1::AgentMessage message, plain;
  ASSERT_TRUE(message.ParseFromString(packed.bytes));
  const v1::Block& block = message.batch().items(0).block();
  EXPECT_THAT(block.edge(), ElementsAre(v1::EDGE_OUTSIDE, v1::EDGE_VIEW));
  EXPECT_THAT(block.edge_distance(), ElementsAre(-3));
  EXPECT_THAT(block.edge_leaf(), ElementsAre(2));
  ASSERT_TRUE(plain.ParseFromString(Plainer(packed.bytes, {.digests = true})));
  v1::Block* const known = message.mutable_batch()->mutable_items(0)->mutable_block();
  known->clear_edge();
  known->clear_edge_distance();
  known->clear_edge_leaf();
  EXPECT_EQ(plain.SerializeAsString(), message.SerializeAsString()) << "and the digests still match";
}

TEST_F(PackerTest, TablesHoldEachValueOnceAndIndicesPointAtThem) {
  const ParentId parent = dictionary_.DefineParent("Module.a.forward.0");
  const Frame frame{.path = "<cell>", .line = 2, .function = "f", .source = "  x = 1  "};
  const StackId stack = dictionary_.DefineStack({&frame, 1});
  const StructureId other = dictionary_.DefineStructure(Of("other", {NodeKind::kTensor}));
  const std::array<int64_t, 2> wide = {2, 3};
  Leaf leaf;
  leaf.shape = wide;
  const auto add = [&](StructureId structure, uint64_t ordinal, StackId with_stack, ParentId with_parent) {
    Fragment fragment;
    fragment.step = 4;
    fragment.token = 2;
    fragment.structure = structure;
    fragment.count = static_cast<uint32_t>(ordinal * 10);
    fragment.ordinal = ordinal;
    fragment.flags = kEnter;
    fragment.stack = with_stack;
    fragment.parent = with_parent;
    ASSERT_TRUE(Add(fragment, {leaf}));
  };
  add(tensor_, 5, stack, 0);
  add(other, 3, 0, parent);
  leaf.shape = {};
  add(tensor_, 9, stack, parent);
  const v1::Block block = OnlyBlock();
  EXPECT_EQ(block.step(), 4);
  EXPECT_EQ(block.token(), 2);
  EXPECT_THAT(block.structures(),
              ElementsAre(dictionary_.structure(tensor_)->hash, dictionary_.structure(other)->hash));
  EXPECT_THAT(block.structure(), ElementsAre(0, 1, 0));
  EXPECT_THAT(block.count(), ElementsAre(50, 30, 90));
  EXPECT_THAT(block.ordinal_delta(), ElementsAre(5, -2, 6));
  EXPECT_THAT(block.stack(), ElementsAre(1, 0, 1));
  EXPECT_THAT(block.parent(), ElementsAre(0, 1, 1));
  EXPECT_THAT(block.parents(), ElementsAre("Module.a.forward.0"));
  EXPECT_THAT(block.shape(), ElementsAre(0, 0, 1));
  ASSERT_EQ(block.shapes_size(), 2);
  EXPECT_THAT(block.shapes(0).dims(), ElementsAre(2, 3));
  EXPECT_EQ(block.shapes(1).dims_size(), 0);
  EXPECT_EQ(block.thread_size(), 0);  // all 0
}

TEST_F(PackerTest, NumbersAreKeptAsNarrowAsTheyAllow) {
  Leaf leaf;
  leaf.has_statistics = true;
  leaf.max = 1.5;
  leaf.min = -2;
  leaf.mean = 0.1;  // not a float, but in range: rounded
  leaf.norm = 3;
  leaf.variance = 4;
  leaf.zero_count = 11;
  ASSERT_TRUE(AddLeaf(leaf));
  leaf.is_wide = true;
  ASSERT_TRUE(AddLeaf(leaf));
  leaf.is_wide = false;
  leaf.variance = 2.0 * FLT_MAX;
  ASSERT_TRUE(AddLeaf(leaf));
  leaf.variance = 4;
  leaf.max = 16777217;  // 2^24 + 1
  ASSERT_TRUE(AddLeaf(leaf));
  leaf = Leaf();
  leaf.has_statistics = leaf.is_integer = leaf.is_wide = true;
  leaf.integer_max = INT64_MAX;
  leaf.integer_min = -1;
  leaf.mean = 1;
  leaf.norm = 2;
  leaf.variance = 3;
  ASSERT_TRUE(AddLeaf(leaf));
  ASSERT_TRUE(AddLeaf(Leaf()));
  const v1::Block block = OnlyBlock();
  const uint32_t wide = v1::LEAF_STATISTICS | v1::LEAF_WIDE;
  EXPECT_THAT(block.leaf_flags(),
              ElementsAre(v1::LEAF_STATISTICS, wide, wide, wide, v1::LEAF_STATISTICS | v1::LEAF_INTEGER, 0));
  EXPECT_THAT(block.narrow(), ElementsAre(1.5f, -2.0f, 0.1f, 3.0f, 4.0f));
  EXPECT_THAT(block.wide(), ElementsAre(1.5, -2, 0.1, 3, 4,              //
                                        1.5, -2, 0.1, 3, 2.0 * FLT_MAX,  //
                                        16777217, -2, 0.1, 3, 4));
  EXPECT_THAT(block.integer_extremes(), ElementsAre(INT64_MAX, -1));
  EXPECT_THAT(block.integer_moments(), ElementsAre(1, 2, 3));
  EXPECT_THAT(block.zero_count(), ElementsAre(11, 11, 11, 11, 0));
}

TEST_F(PackerTest, NotFiniteStatisticsStayNarrow) {
  Leaf leaf;
  leaf.max = kInf;
  leaf.min = leaf.mean = leaf.norm = leaf.variance = kNan;
  EXPECT_TRUE(FitsFloats(leaf));
  leaf.max = FLT_MAX;
  EXPECT_TRUE(FitsFloats(leaf));
  leaf.norm = 1e39;
  EXPECT_FALSE(FitsFloats(leaf));
  leaf.norm = 1e-60;  // underflows to 0, in range
  EXPECT_TRUE(FitsFloats(leaf));
  leaf.min = 1e-60;
  EXPECT_FALSE(FitsFloats(leaf));
}

TEST_F(PackerTest, NonFiniteCountsNameTheirLeaf) {
  Leaf leaf;
  leaf.has_statistics = true;
  ASSERT_TRUE(AddLeaf(leaf));
  leaf.nan_count = 2;
  leaf.finite_max = 7;
  ASSERT_TRUE(AddLeaf(leaf));
  leaf.negative_inf_count = 1;
  leaf.has_finite = false;
  ASSERT_TRUE(AddLeaf(leaf));
  const v1::Block block = OnlyBlock();
  ASSERT_EQ(block.non_finite_size(), 2);
  EXPECT_EQ(block.non_finite(0).leaf(), 1);
  EXPECT_EQ(block.non_finite(0).nan_count(), 2);
  EXPECT_EQ(block.non_finite(0).finite_max(), 7);
  EXPECT_EQ(block.non_finite(1).leaf(), 2);
  EXPECT_EQ(block.non_finite(1).negative_inf_count(), 1);
  EXPECT_FALSE(block.non_finite(1).has_finite_max());
}

TEST_F(PackerTest, ChecksumsAndPayloadsAreFlaggedColumns) {
  Leaf leaf;
  leaf.crc32 = 0x3df3c1ba;
  ASSERT_TRUE(AddLeaf(leaf));
  leaf = Leaf();
  leaf.xor64 = 0;
  leaf.reused = true;
  const std::shared_ptr<PayloadName> name = (leaf.payload = std::make_shared<BytesPayload>("abc"))->name();
  EXPECT_FALSE(name->announced());
  ASSERT_TRUE(AddLeaf(leaf));
  EXPECT_TRUE(name->announced());
  const PackedBatch packed = packer_.Cut(0);
  const v1::Batch batch = Parse(packed);
  const v1::Block& block = batch.items(0).block();
  EXPECT_THAT(block.leaf_flags(), ElementsAre(v1::LEAF_CRC32, v1::LEAF_XOR | v1::LEAF_REUSED | v1::LEAF_PAYLOAD));
  EXPECT_THAT(block.crc32(), ElementsAre(0x3df3c1ba));
  EXPECT_THAT(block.xor64(), ElementsAre(0));
  ASSERT_EQ(block.payload_size(), 1);
  EXPECT_EQ(block.payload(0).size(), 3);
  // XXH3-128 of "abc", as xxhsum -H2 prints it.
  const std::string expected("\x06\xb0\x5a\xb6\x73\x3a\x61\x85\x78\xaf\x5f\x94\x89\x2f\x39\x50", 16);
  EXPECT_EQ(block.payload(0).hash(), expected);
  ASSERT_EQ(packed.payloads.size(), 1);
  EXPECT_EQ(packed.payloads[0].hash, expected);
}

TEST_F(PackerTest, DefinitionsComeOnceInTheFirstBatchThatUsesThem) {
  ASSERT_TRUE(AddLeaf(Leaf()));
  ASSERT_TRUE(AddLeaf(Leaf()));
  const v1::Batch first = Parse(packer_.Cut(2));
  ASSERT_EQ(first.definitions_size(), 1);
  EXPECT_EQ(first.definitions(0).id(), DefinitionHash(first.definitions(0).structure()));
  EXPECT_EQ(first.definitions(0).id(), first.items(0).block().structures(0));
  EXPECT_EQ(first.batch_sequence(), 1);
  EXPECT_EQ(first.session(), "0123456789abcdef");
  ASSERT_TRUE(AddLeaf(Leaf()));
  const PackedBatch second = packer_.Cut(3);
  EXPECT_EQ(Parse(second).definitions_size(), 0);
  EXPECT_EQ(second.sequence, 2);
  EXPECT_EQ(second.last_entry, 3);
  EXPECT_EQ(second.fragments, 1);
  v1::Batch all;
  packer_.CopyDefinitions(&all);
  EXPECT_EQ(all.definitions_size(), 1);
}

TEST_F(PackerTest, StackFramesTakeTheirSourceFromTheFileAndThoseWithoutAreLeftOut) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() / Cat("core-packer-", getpid(), ".py");
  std::ofstream(path) << "a\n   y = f(x)\n";
  const std::array<Frame, 3> frames = {Frame{.path = path, .line = 2, .function = "g", .source = ""},
                                       Frame{.path = "<frozen importlib>", .line = 5, .function = "h", .source = ""},
                                       Frame{.path = "<cell>", .line = 1, .function = "<module>", .source = "z = 1"}};
  Fragment fragment;
  fragment.structure = tensor_;
  fragment.stack = dictionary_.DefineStack(frames);
  ASSERT_TRUE(Add(fragment, {Leaf()}));
  std::filesystem::remove(path);
  const v1::Batch batch = Parse(packer_.Cut(1));
  v1::Stack stack;
  for (const v1::Definition& definition : batch.definitions()) {
    if (!definition.has_stack()) continue;
    ASSERT_TRUE(stack.ParseFromString(definition.stack()));
    EXPECT_EQ(definition.id(), batch.items(0).block().stacks(0));
  }
  ASSERT_EQ(stack.frames_size(), 2);
  EXPECT_EQ(stack.frames(0).source(), "y = f(x)");
  EXPECT_EQ(stack.frames(0).line(), 2);
  EXPECT_EQ(stack.frames(1).function(), "<module>");
}

TEST_F(PackerTest, APassOrAMarkerBeginsABlock) {
  Fragment fragment;
  fragment.structure = tensor_;
  fragment.ordinal = 8;
  fragment.thread = 1;
  ASSERT_TRUE(Add(fragment, {Leaf()}));
  fragment.token = 1;
  ASSERT_TRUE(Add(fragment, {Leaf()}));
  v1::Marker marker;
  marker.mutable_step_end()->set_step(0);
  packer_.AddMarker(marker, std::nullopt);
  ASSERT_TRUE(Add(fragment, {Leaf()}));
  const v1::Batch batch = Parse(packer_.Cut(4));
  ASSERT_EQ(batch.items_size(), 4);
  EXPECT_EQ(batch.items(0).block().token(), 0);
  EXPECT_EQ(batch.items(1).block().token(), 1);
  EXPECT_TRUE(batch.items(2).marker().has_step_end());
  for (int i : {0, 1, 3}) {
    EXPECT_THAT(batch.items(i).block().ordinal_delta(), ElementsAre(8));
    EXPECT_THAT(batch.items(i).block().thread(), ElementsAre(1));
  }
}

TEST_F(PackerTest, ABatchIsFullAtItsLimits) {
  for (size_t i = 0; i < Packer::kMaxFragments; ++i) {
    ASSERT_FALSE(packer_.full());
    ASSERT_TRUE(AddLeaf(Leaf()));
  }
  EXPECT_TRUE(packer_.full());
  packer_.Cut(0);
  EXPECT_FALSE(packer_.full());
  EXPECT_TRUE(packer_.empty());
  const std::string large(2 << 20, 'x');
  const std::array<std::string_view, 1> strings = {large};
  Fragment fragment;
  fragment.structure = dictionary_.DefineStructure(Of("s", {NodeKind::kString}));
  fragment.strings = strings;
  ASSERT_TRUE(Add(fragment, {}));
  EXPECT_TRUE(packer_.full());
  const std::string too_large(4 << 20, 'x');
  const std::array<std::string_view, 1> too_large_strings = {too_large};
  fragment.strings = too_large_strings;
  EXPECT_FALSE(Add(fragment, {}));
}

TEST_F(PackerTest, RandomFragmentsThroughTheQueueComeOutAsTheyWentIn) {
  std::mt19937 random(7);
  const auto pick = [&](uint32_t below) { return static_cast<uint32_t>(random() % below); };
  const StructureId structure =
      dictionary_.DefineStructure(Of("r", {NodeKind::kTensor, NodeKind::kInteger, NodeKind::kTensor, NodeKind::kBoolean,
                                           NodeKind::kBoolean, NodeKind::kBoolean, NodeKind::kString}));
  Doorbell bell;
  FragmentQueue queue(&bell);
  struct Sent {
    uint32_t count;
    std::vector<int64_t> shapes[2];
    double max;
    int64_t integer;
    bool booleans[3];
    std::string text;
    std::string payload;
  };
  std::vector<Sent> sent(5000);
  for (Sent& one : sent) {
    one.count = pick(1000);
    for (auto& shape : one.shapes) {
      shape.resize(pick(5));
      for (int64_t& dim : shape) dim = pick(4);
    }
    one.max = pick(100);
    one.integer = static_cast<int64_t>(random()) - 1000;
    for (bool& value : one.booleans) value = pick(2) == 1;
    one.text.assign(pick(40), static_cast<char>('a' + pick(26)));
    if (pick(10) == 0) one.payload.assign(1 + pick(50), 'p');
    std::array<Leaf, 2> leaves;
    for (int i = 0; i < 2; ++i) leaves[i].shape = one.shapes[i];
    leaves[0].has_statistics = true;
    leaves[0].max = one.max;
    if (!one.payload.empty()) leaves[1].payload = std::make_shared<BytesPayload>(one.payload);
    const std::array<int64_t, 1> integers = {one.integer};
    const std::array<std::string_view, 1> strings = {one.text};
    Fragment fragment;
    fragment.structure = structure;
    fragment.count = one.count;
    fragment.leaves = leaves;
    fragment.integers = integers;
    fragment.booleans = one.booleans;
    fragment.strings = strings;
    queue.Append(fragment);
  }
  size_t next = 0;
  const auto check = [&](const PackedBatch& packed) {
    size_t payload = 0;
    const v1::Batch batch = Parse(packed);
    for (const v1::Item& item : batch.items()) {
      const v1::Block& block = item.block();
      int payload_row = 0;
      for (int i = 0; i < block.count_size(); ++i) {
        const Sent& one = sent[next++];
        ASSERT_EQ(block.count(i), one.count);
        for (int leaf = 0; leaf < 2; ++leaf) {
          const auto& dims = block.shapes(block.shape(2 * i + leaf)).dims();
          ASSERT_EQ(std::vector<int64_t>(dims.begin(), dims.end()), one.shapes[leaf]);
        }
        ASSERT_EQ(block.narrow(5 * i), one.max);
        ASSERT_EQ(block.integers(i), one.integer);
        for (int b = 0; b < 3; ++b) ASSERT_EQ(block.booleans(3 * i + b), one.booleans[b]);
        ASSERT_EQ(block.strings(i), one.text);
        ASSERT_EQ((block.leaf_flags(2 * i + 1) & v1::LEAF_PAYLOAD) != 0, !one.payload.empty());
        if (one.payload.empty()) continue;
        ASSERT_EQ(block.payload(payload_row++).size(), one.payload.size());
        const std::span<std::byte> bytes = packed.payloads[payload++].payload->bytes();
        ASSERT_EQ(std::string(reinterpret_cast<char*>(bytes.data()), bytes.size()), one.payload);
      }
    }
  };
  for (Chunk& chunk : queue.Take()) {
    ChunkReader reader(&chunk);
    while (reader.Next()) {
      ASSERT_TRUE(packer_.Add(reader.fragment(), reader.leaves()));
      if (packer_.full()) check(packer_.Cut(0));
    }
  }
  check(packer_.Cut(0));
  EXPECT_EQ(next, sent.size());
}

}  // namespace
}  // namespace msprobe::core
