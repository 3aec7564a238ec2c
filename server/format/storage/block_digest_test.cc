#include "server/format/storage/block_digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "agent/core/queue/dictionary.h"
#include "agent/core/queue/fragment_digest.h"
#include "agent/core/queue/fragment_queue.h"
#include "agent/core/transport/packing/packer.h"
#include "server/format/tiles/tile_reader.h"
#include "server/format/tiles/tile_writer.h"

namespace msprobe::server {
namespace {

using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class BytesPayload : public core::Payload {
 public:
  std::span<std::byte> bytes() override { return bytes_; }

 private:
  std::array<std::byte, 24> bytes_{};
};

// A reading that arrives after its fragment was captured.
class LateReading : public core::PendingReading {
 public:
  State state() const override { return State::kCame; }
  void RingWhenDone(std::shared_ptr<core::Doorbell>) override {}
  void Complete(core::Leaf& leaf) override {
    leaf.has_statistics = true;
    leaf.max = 7;
  }
};

// Captures fragments with the agent's code and gets the blocks that a server would receive.
class BlockDigestTest : public testing::Test {
 protected:
  BlockDigestTest() : packer_("0123456789abcdef", &dictionary_) {
    core::Structure structure;
    structure.name = "Functional.everything";
    structure.fields.kind = core::NodeKind::kDict;
    using core::NodeKind;
    for (NodeKind kind :
         {NodeKind::kTensor, NodeKind::kTensor, NodeKind::kTensor, NodeKind::kTensor, NodeKind::kInteger,
          NodeKind::kFloat, NodeKind::kBoolean, NodeKind::kString, NodeKind::kJson, NodeKind::kNone}) {
      core::Node& node = structure.fields.children.emplace_back();
      node.kind = kind;
      node.key = std::to_string(structure.fields.children.size());
    }
    everything_ = dictionary_.DefineStructure(structure);
    structure.name = "Functional.one";
    structure.fields.children.resize(1);
    one_ = dictionary_.DefineStructure(structure);
    parent_ = dictionary_.DefineParent("Module.root.Root.forward.0");
  }

  static std::vector<core::Leaf> Leaves() {
    static constexpr std::array<int64_t, 2> kShape = {3, 4};
    std::vector<core::Leaf> leaves(4);
    for (core::Leaf& leaf : leaves) leaf.shape = kShape;
    core::Leaf& narrow = leaves[0];
    narrow.has_statistics = true;
    narrow.max = 1.5;
    narrow.min = -0.0;
    narrow.mean = 0.1;  // not exact as a float
    narrow.norm = kNan;
    narrow.variance = kInf;
    narrow.zero_count = 3;
    narrow.nan_count = 1;
    narrow.finite_max = 1.25;
    narrow.crc32 = 0;
    core::Leaf& wide = leaves[1];
    wide.has_statistics = wide.is_wide = true;
    wide.max = 1e300;
    wide.positive_inf_count = 2;
    wide.has_finite = false;
    wide.xor64 = 99;
    core::Leaf& integer = leaves[2];
    integer.has_statistics = integer.is_integer = true;
    integer.integer_max = std::numeric_limits<int64_t>::max();
    integer.integer_min = -5;
    integer.mean = 0.5;
    integer.reused = true;
    leaves[3].shape = {};
    leaves[3].payload = std::make_shared<BytesPayload>();
    return leaves;
  }

  // Captures a fragment as a session does.
  void Capture(core::Fragment fragment) {
    fragment.digest = core::DigestAtCapture(fragment, dictionary_);
    queue_.Append(fragment);
  }
  void CaptureEverything(uint32_t step) {
    static constexpr std::array<int64_t, 1> kIntegers = {-3};
    static constexpr std::array<double, 1> kFloats = {0.1};
    static constexpr std::array<bool, 1> kBooleans = {true};
    static constexpr std::array<std::string_view, 2> kStrings = {"mean \xff", "{\"start\": 1}"};
    std::vector<core::Leaf> leaves = Leaves();
    leaves[0].max = step + 2;
    Capture({.step = step,
             .token = 1,
             .structure = everything_,
             .count = 4,
             .ordinal = 77,
             .flags = core::kEnter | core::kExit,
             .parent = parent_,
             .thread = 2,
             .leaves = leaves,
             .integers = kIntegers,
             .floats = kFloats,
             .booleans = kBooleans,
             .strings = kStrings});
  }

  std::vector<v1::Block> Blocks() {
    for (core::Chunk& chunk : queue_.Take()) {
      core::ChunkReader reader(&chunk);
      while (reader.Next()) {
        for (core::Leaf& leaf : reader.leaves()) {
          if (leaf.pending != nullptr) leaf.pending->Complete(leaf);
          leaf.pending.reset();
        }
        EXPECT_TRUE(packer_.Add(reader.fragment(), reader.leaves()));
      }
    }
    v1::AgentMessage message;
    EXPECT_TRUE(message.ParseFromString(packer_.Cut(0).bytes));
    for (const v1::Definition& definition : message.batch().definitions()) {
      v1::Structure structure;
      EXPECT_TRUE(structure.ParseFromString(definition.structure()));
      summaries_[definition.id()] = *Summarize(structure);
    }
    std::vector<v1::Block> blocks;
    for (const v1::Item& item : message.batch().items()) blocks.push_back(item.block());
    return blocks;
  }

  const StructureSummary* Summary(uint64_t id) const { return summaries_.contains(id) ? &summaries_.at(id) : nullptr; }
  absl::Status Check(const v1::Block& block) const {
    const auto summary = [this](uint64_t id) { return Summary(id); };
    auto columns = CheckBlock(block, summary, [](uint64_t) { return true; });
    return columns.ok() ? CheckDigests(block, *columns, summary) : columns.status();
  }

  core::Dictionary dictionary_;
  core::Doorbell bell_;
  core::FragmentQueue queue_{&bell_};
  core::Packer packer_;
  core::StructureId everything_ = 0, one_ = 0;
  core::ParentId parent_ = 0;
  std::map<uint64_t, StructureSummary> summaries_;
};

TEST_F(BlockDigestTest, WhatWasCapturedIsWhatIsRead) {
  CaptureEverything(3);
  CaptureEverything(3);
  const std::vector<v1::Block> blocks = Blocks();
  ASSERT_EQ(blocks.size(), 1);
  EXPECT_THAT(blocks[0].digest(), testing::ElementsAre(testing::Ne(0), testing::Ne(0)));
  EXPECT_EQ(Check(blocks[0]), absl::OkStatus());
}

// Changes each value of each column in turn.
TEST_F(BlockDigestTest, NoValueChangesUnnoticed) {
  CaptureEverything(3);
  const v1::Block block = Blocks()[0];
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  block.GetReflection()->ListFields(block, &fields);
  int changed = 0;
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->name() == "stack" || field->name() == "stacks") continue;  // not part of the digest
    for (int i = 0; i < (field->is_repeated() ? block.GetReflection()->FieldSize(block, field) : 1); ++i) {
      v1::Block other = block;
      const google::protobuf::Reflection& set = *other.GetReflection();
      using google::protobuf::FieldDescriptor;
      if (!field->is_repeated()) {
        set.SetUInt32(&other, field, set.GetUInt32(other, field) + 1);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
        set.SetRepeatedUInt32(&other, field, i, set.GetRepeatedUInt32(other, field, i) ^ 1);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
        set.SetRepeatedUInt64(&other, field, i, set.GetRepeatedUInt64(other, field, i) ^ 1);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
        set.SetRepeatedInt64(&other, field, i, set.GetRepeatedInt64(other, field, i) ^ 1);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
        set.SetRepeatedFloat(&other, field, i, 42);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
        set.SetRepeatedDouble(&other, field, i, 42);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
        set.SetRepeatedBool(&other, field, i, !set.GetRepeatedBool(other, field, i));
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        set.SetRepeatedString(&other, field, i, "another");
      } else {
        continue;
      }
      EXPECT_NE(Check(other), absl::OkStatus()) << field->name() << " " << i;
      ++changed;
    }
  }
  EXPECT_GT(changed, 40);

  v1::Block other = block;
  other.mutable_shapes(0)->set_dims(1, 5);
  EXPECT_NE(Check(other), absl::OkStatus());
  other = block;
  other.mutable_non_finite(0)->set_finite_max(1.5);
  EXPECT_NE(Check(other), absl::OkStatus());
  other = block;
  other.clear_non_finite();
  EXPECT_NE(Check(other), absl::OkStatus());
}

TEST_F(BlockDigestTest, ErrorNamesTheRecord) {
  CaptureEverything(3);
  v1::Block block = Blocks()[0];
  block.set_floats(0, 0.2);
  const absl::Status status = Check(block);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("Functional.everything.4.forward of step 3 is not as it was captured"));
}

TEST_F(BlockDigestTest, ReadingThatCameLaterIsInTheDigest) {
  std::vector<core::Leaf> leaves(1);
  leaves[0].pending = std::make_shared<LateReading>();
  core::Fragment fragment;
  fragment.structure = one_;
  fragment.leaves = leaves;
  Capture(fragment);
  v1::Block block = Blocks()[0];
  ASSERT_NE(block.digest(0), 0);
  EXPECT_EQ(Check(block), absl::OkStatus());
  block.set_narrow(0, 8);
  EXPECT_NE(Check(block), absl::OkStatus());
}

TEST_F(BlockDigestTest, AgentsOfEarlierVersionsTookNone) {
  CaptureEverything(3);
  v1::Block block = Blocks()[0];
  block.set_floats(0, 0.2);
  block.clear_digest();
  EXPECT_EQ(Check(block), absl::OkStatus());
  block.add_digest(0);
  EXPECT_EQ(Check(block), absl::OkStatus());
  block.add_digest(0);
  EXPECT_EQ(Check(block).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BlockDigestTest, TilesKeepDigests) {
  for (uint32_t step = 0; step < 8; ++step) CaptureEverything(step);
  const std::vector<v1::Block> blocks = Blocks();
  ASSERT_EQ(blocks.size(), 8);
  const auto summary = [this](uint64_t id) { return Summary(id); };
  std::vector<TilePass> passes;
  for (const v1::Block& block : blocks) {
    auto pass = TilePass::Make({&block}, summary);
    ASSERT_TRUE(pass.ok()) << pass.status();
    passes.push_back(*std::move(pass));
  }
  const std::string tile = EncodeTile(passes, 0, 1, summary);
  auto reader = TileReader::Open(tile);
  ASSERT_TRUE(reader.ok()) << reader.status();
  for (uint32_t pass = 0; pass < 8; ++pass) {
    BlockBuilder builder;
    builder.Begin(pass, 1);
    ASSERT_EQ(reader->AppendFragments(0, 1, pass, builder), absl::OkStatus());
    const v1::Block block = builder.Take();
    ASSERT_EQ(block.digest_size(), 1);
    EXPECT_EQ(block.digest(0), blocks[pass].digest(0));
    EXPECT_EQ(Check(block), absl::OkStatus());
  }
}

TEST_F(BlockDigestTest, NoTileIsMadeOfWhatHasChanged) {
  CaptureEverything(3);
  v1::Block block = Blocks()[0];
  block.set_floats(0, 0.2);
  EXPECT_EQ(TilePass::Make({&block}, [this](uint64_t id) { return Summary(id); }).status().code(),
            absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace msprobe::server
