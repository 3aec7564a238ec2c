#include "agent/capture/edges/producers.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace msprobe::capture {
namespace {

using core::EdgeKind;

// A storage of a small framework: it lives as long as a tensor, or a weak reference, has it.
struct Block {
  int tensors = 0;
  int weak = 0;
  const void* memory = nullptr;
};

constexpr WeakStorage kWeak = {
    .retain = [](const void* block) { ++static_cast<Block*>(const_cast<void*>(block))->weak; },
    .release = [](const void* block) { --static_cast<Block*>(const_cast<void*>(block))->weak; },
    .expired = [](const void* block) { return static_cast<const Block*>(block)->tensors == 0; },
};

// Blocks at few addresses: a free one comes back as soon as nobody refers to it, as a heap does.
class Heap {
 public:
  Block* Make() {
    for (Block& block : blocks_) {
      if (block.tensors == 0 && block.weak == 0) return Take(block);
    }
    return Take(blocks_.emplace_back());
  }
  size_t size() const { return blocks_.size(); }

 private:
  Block* Take(Block& block) {
    block.tensors = 1;
    block.memory = &memory_;  // the same memory for all: an address tells nothing
    return &block;
  }
  std::deque<Block> blocks_;
  char memory_ = 0;
};

struct View {
  int64_t begin = 0;
  int64_t end = 16;
  uint64_t layout = 0;  // 0: made of begin and end
};

class ProducersTest : public ::testing::Test {
 protected:
  static TensorIdentity Tensor(Block* block, uint32_t version = 0, View view = {}) {
    TensorIdentity tensor;
    tensor.storage = StorageReference(block, &kWeak);
    tensor.memory = block->memory;
    tensor.begin = view.begin;
    tensor.end = view.end;
    tensor.layout = view.layout != 0 ? view.layout : static_cast<uint64_t>(view.begin * 1000 + view.end);
    tensor.version = version;
    tensor.has_version = true;
    return tensor;
  }
  static TensorIdentity Inference(Block* block, View view = {}) {
    TensorIdentity tensor = Tensor(block, 0, view);
    tensor.has_version = false;
    return tensor;
  }
  void Give(const TensorIdentity& tensor, uint64_t ordinal, uint32_t leaf = 0, std::optional<uint64_t> begun = {}) {
    const uint64_t time = producers_.Look(tensor).time;
    producers_.Add(tensor, time, {.ordinal = ordinal, .leaf = leaf}, begun.value_or(ordinal));
  }
  // "same 3.0": the output 0 of the record with ordinal 3.
  std::string From(const TensorIdentity& tensor) {
    constexpr std::array kNames = {"unknown", "outside", "same", "view", "changed", "unversioned"};
    const Producer producer = producers_.Look(tensor).producer;
    std::string text = kNames.at(static_cast<size_t>(producer.kind));
    if (producer.kind < EdgeKind::kSame) return text;
    return text + " " + std::to_string(producer.ordinal) + "." + std::to_string(producer.leaf);
  }

  Heap heap_;
  Producers producers_{64};
};

TEST_F(ProducersTest, TellsWhichRecordMadeATensor) {
  Block* const a = heap_.Make();
  Block* const b = heap_.Make();
  Give(Tensor(a), 3);
  Give(Tensor(b), 4, 1);
  EXPECT_EQ(From(Tensor(a)), "same 3.0");
  EXPECT_EQ(From(Tensor(b)), "same 4.1");
  EXPECT_EQ(From(Tensor(heap_.Make())), "outside");
  EXPECT_EQ(From(TensorIdentity()), "unknown");
}

TEST_F(ProducersTest, AViewThatWasRecordedIsItsOwnAndAnotherIsItsLastBases) {
  Block* const a = heap_.Make();
  Give(Tensor(a), 3);
  EXPECT_EQ(From(Tensor(a, 0, {0, 8})), "view 3.0");
  Give(Tensor(a, 0, {0, 8}), 5, 0);
  Give(Tensor(a, 0, {8, 16}), 5, 1);
  EXPECT_EQ(From(Tensor(a, 0, {8, 16})), "same 5.1");
  EXPECT_EQ(From(Tensor(a, 0, {8, 12})), "view 5.1");
  EXPECT_EQ(From(Tensor(a)), "same 3.0");
  EXPECT_EQ(From(Tensor(a, 0, {0, 16, 77})), "view 5.1") << "transposed";
}

TEST_F(ProducersTest, WhatWroteInPlaceIsTheProducer) {
  Block* const a = heap_.Make();
  Give(Tensor(a), 3);
  Give(Tensor(a, 0, {0, 8}), 4);
  Give(Tensor(a, 1, {0, 8}), 5);  // through the view
  EXPECT_EQ(From(Tensor(a, 1)), "view 5.0");
  EXPECT_EQ(From(Tensor(a, 1, {0, 8})), "same 5.0");
  EXPECT_EQ(From(Tensor(a, 1, {8, 16})), "changed 3.0") << "the version is of the whole storage";
  Give(Tensor(a, 2), 6);
  EXPECT_EQ(From(Tensor(a, 2)), "same 6.0");
  EXPECT_EQ(From(Tensor(a, 3)), "changed 6.0") << "by nobody that was recorded";
}

TEST_F(ProducersTest, VersionsOfAnotherCounterProveNothing) {
  Block* const a = heap_.Make();
  Give(Tensor(a, 0), 3);
  Give(Tensor(a, 2, {0, 8}), 4);  // through x.data, which counts on its own
  EXPECT_EQ(From(Tensor(a, 0)), "unversioned 4.0");
  Block* const b = heap_.Make();
  Give(Inference(b), 5);
  EXPECT_EQ(From(Inference(b)), "unversioned 5.0");
  EXPECT_EQ(From(Inference(b, {0, 8})), "unversioned 5.0");
  Give(Inference(b, {0, 8}), 6);
  EXPECT_EQ(From(Inference(b)), "unversioned 6.0");
}

TEST_F(ProducersTest, ACallInsideAModuleIsTheProducerOfWhatTheModuleGivesOut) {
  Block* const a = heap_.Make();
  Give(Tensor(a), 11);
  Give(Tensor(a), 12, 0, /*begun=*/10);
  EXPECT_EQ(From(Tensor(a)), "same 11.0");
  Give(Tensor(a), 14, 0, /*begun=*/13);  // Identity
  EXPECT_EQ(From(Tensor(a)), "same 14.0");
}

TEST_F(ProducersTest, WhatIsToldLateDoesNotHideWhatCameSince) {
  Block* const a = heap_.Make();
  const uint64_t early = producers_.Look(Tensor(a)).time;
  Give(Tensor(a, 1), 5);
  producers_.Add(Tensor(a), early, {.ordinal = 9}, 4);
  EXPECT_EQ(From(Tensor(a, 1)), "same 5.0");
}

TEST_F(ProducersTest, NothingIsKnownOfAnotherStep) {
  Block* const a = heap_.Make();
  Give(Tensor(a), 3);
  const uint64_t before = producers_.Look(Tensor(a)).time;
  producers_.EndStep();
  EXPECT_EQ(From(Tensor(a)), "outside");
  EXPECT_EQ(a->weak, 0);
  producers_.Add(Tensor(a), before, {.ordinal = 4}, 4);
  EXPECT_EQ(From(Tensor(a)), "outside") << "the reading is of the step before";
}

TEST_F(ProducersTest, OtherMemoryUnderAStorageIsUnknown) {
  Block* const a = heap_.Make();
  Give(Tensor(a), 3);
  int other = 0;
  a->memory = &other;
  EXPECT_EQ(From(Tensor(a)), "unknown");
  Give(Tensor(a), 4);
  EXPECT_EQ(From(Tensor(a)), "same 4.0");
}

TEST_F(ProducersTest, AFullTableSaysUnknown) {
  std::vector<Block*> blocks;
  for (int i = 0; i < 70; ++i) {
    blocks.push_back(heap_.Make());
    Give(Tensor(blocks.back()), 100 + static_cast<uint64_t>(i));
  }
  EXPECT_EQ(producers_.tensors(), 64);
  EXPECT_EQ(From(Tensor(blocks[0])), "same 100.0");
  EXPECT_EQ(From(Tensor(blocks[69])), "unknown");
  Give(Tensor(blocks[0], 1), 200);
  EXPECT_EQ(From(Tensor(blocks[0], 1)), "same 200.0") << "takes the place of what was there";
  Give(Tensor(blocks[1], 1, {0, 8}), 201);
  EXPECT_EQ(From(Tensor(blocks[1], 1)), "unknown") << "the write found no room, so the storage's outputs are forgotten";
  for (Block* block : blocks) block->tensors = 0;
  for (int i = 0; i < 40; ++i) Give(Tensor(heap_.Make()), 300);
  EXPECT_LE(producers_.tensors(), 64);
  EXPECT_LT(heap_.size(), 112) << "storages that are gone are let go of";
}

TEST_F(ProducersTest, OfOneStorageTheLastOutputsAreKnown) {
  Producers producers(1000);
  Block* const a = heap_.Make();
  for (int64_t i = 0; i < 100; ++i) {
    const TensorIdentity tensor = Tensor(a, 0, {i, i + 1});
    producers.Add(tensor, producers.Look(tensor).time, {.ordinal = static_cast<uint64_t>(i)}, 0);
  }
  EXPECT_EQ(producers.tensors(), Producers::kMaxInStorage);
  EXPECT_EQ(producers.Look(Tensor(a, 0, {99, 100})).producer.ordinal, 99);
  EXPECT_EQ(producers.Look(Tensor(a, 0, {0, 1})).producer.kind, EdgeKind::kUnknown);
}

// Storages come and go at few addresses, with the same memory and versions: no tensor gets another one's producer.
TEST_F(ProducersTest, AddressesThatComeBackGiveNoWrongEdge) {
  std::mt19937 random(7);
  std::vector<std::pair<Block*, uint64_t>> live;  // with the ordinal of its producer; 0: none was recorded
  for (uint64_t ordinal = 1; ordinal < 20'000; ++ordinal) {
    if (live.size() > 8) {
      const size_t at = random() % live.size();
      live[at].first->tensors = 0;
      live[at] = live.back();
      live.pop_back();
    }
    const bool recorded = random() % 3 != 0;
    live.emplace_back(heap_.Make(), recorded ? ordinal : 0);
    if (recorded) Give(Tensor(live.back().first), ordinal);
    const auto& [block, producer] = live[random() % live.size()];
    ASSERT_EQ(From(Tensor(block)), producer == 0 ? "outside" : "same " + std::to_string(producer) + ".0");
  }
  EXPECT_LT(heap_.size(), 40) << "dead storages are let go of within the step";
}

}  // namespace
}  // namespace msprobe::capture
