#include "agent/core/queue/dictionary.h"

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "agent/core/content_hash.h"
#include "agent/core/str_cat.h"
#include "gtest/gtest.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::core {
namespace {

Node Make(NodeKind kind, std::string key = "") {
  Node node;
  node.kind = kind;
  node.key = std::move(key);
  return node;
}

Structure Example() {
  Structure structure;
  structure.name = "Functional.linear";
  structure.kind = RecordKind::kApi;
  structure.direction = Direction::kBackward;
  structure.fields = Make(NodeKind::kDict);
  Node arguments = Make(NodeKind::kList, "input_args");
  Node tensor = Make(NodeKind::kTensor);
  tensor.type = "torch.Tensor";
  tensor.dtype = 2;
  tensor.device = "cpu";
  tensor.requires_grad = true;
  arguments.children = {tensor, Make(NodeKind::kNone), Make(NodeKind::kInteger), tensor, Make(NodeKind::kJson)};
  Node keywords = Make(NodeKind::kDict, "input_kwargs");
  keywords.children = {Make(NodeKind::kString, "mode"), Make(NodeKind::kFloat, "eps"), Make(NodeKind::kBoolean, "b")};
  structure.fields.children = {arguments, keywords};
  return structure;
}

TEST(DictionaryTest, StructuresAreSerializedHashedAndTheirSlotsCounted) {
  Dictionary dictionary;
  const StructureId id = dictionary.DefineStructure(Example());
  const Dictionary::StructureEntry* const entry = dictionary.structure(id);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->hash, DefinitionHash(entry->content));
  EXPECT_EQ(entry->slots, (Dictionary::Slots{.tensors = 2, .integers = 1, .floats = 1, .booleans = 1, .strings = 2}));
  v1::Structure read;
  ASSERT_TRUE(read.ParseFromArray(entry->content.data(), static_cast<int>(entry->content.size())));
  EXPECT_EQ(read.name(), "Functional.linear");
  EXPECT_EQ(read.direction(), v1::DIRECTION_BACKWARD);
  const v1::Node& arguments = read.fields().dict().entries(0).value();
  EXPECT_EQ(arguments.list().items(0).tensor().device(), "cpu");
  EXPECT_TRUE(arguments.list().items(3).tensor().requires_grad());
  EXPECT_EQ(arguments.list().items(1).slot(), v1::Node::NONE);
  EXPECT_EQ(arguments.list().items(4).slot(), v1::Node::JSON);
  EXPECT_EQ(read.fields().dict().entries(1).value().dict().entries(1).key(), "eps");
}

TEST(DictionaryTest, EqualContentGetsTheEqualNumber) {
  Dictionary dictionary;
  const StructureId id = dictionary.DefineStructure(Example());
  EXPECT_GT(id, 0);
  EXPECT_EQ(dictionary.DefineStructure(Example()), id);
  Structure other = Example();
  other.fields.children[0].children[0].requires_grad = false;
  EXPECT_NE(dictionary.DefineStructure(other), id);
  Structure again = Example();
  again.pass = 2;
  v1::Structure sent;
  const auto& content = dictionary.structure(dictionary.DefineStructure(again))->content;
  ASSERT_TRUE(sent.ParseFromArray(content.data(), static_cast<int>(content.size())));
  EXPECT_EQ(sent.name(), "Functional.linear#2");

  const Frame frame{.path = "a.py", .line = 3, .function = "f", .source = ""};
  const StackId stack = dictionary.DefineStack({&frame, 1});
  EXPECT_EQ(dictionary.DefineStack({&frame, 1}), stack);
  EXPECT_NE(dictionary.DefineStack({}), stack);
  EXPECT_EQ(dictionary.stack(stack).frames(0).path(), "a.py");

  const ParentId parent = dictionary.DefineParent("Module.a.Linear.forward.0");
  EXPECT_EQ(dictionary.DefineParent("Module.a.Linear.forward.0"), parent);
  EXPECT_EQ(*dictionary.parent(parent), "Module.a.Linear.forward.0");
}

TEST(DictionaryTest, NumbersNeverGivenAreUnknown) {
  const Dictionary dictionary;
  EXPECT_EQ(dictionary.structure(0), nullptr);
  EXPECT_EQ(dictionary.structure(1), nullptr);
  EXPECT_FALSE(dictionary.has_stack(7));
  EXPECT_EQ(dictionary.parent(7), nullptr);
}

TEST(DictionaryTest, StacksBeyondTheirRoomAreRefusedAndThoseBeforeStay) {
  Dictionary dictionary(SessionMemory::Private(), 64 << 10);
  const auto nested = [&](uint32_t depth) {
    std::vector<Frame> frames;
    for (uint32_t i = 0; i < depth; ++i)
      frames.push_back({.path = "nest.py", .line = depth - i, .function = "f", .source = ""});
    return dictionary.DefineStack(frames);
  };
  uint32_t depth = 1;
  while (nested(depth) != 0) ++depth;
  EXPECT_GT(depth, 100) << "each of these frames is kept once, not once in each of the stacks";
  EXPECT_LT(depth, 400);
  EXPECT_EQ(nested(depth + 1), 0);
  const v1::Stack known = dictionary.stack(nested(depth - 1));
  EXPECT_EQ(known.frames_size(), depth - 1);
  EXPECT_EQ(known.frames(0).line(), depth - 1);
  EXPECT_EQ(known.frames(depth - 2).line(), 1);
}

TEST(DictionaryTest, AStackThatAnEarlierVersionLeftAsTextIsRead) {
  v1::Stack stack;
  stack.add_frames()->set_path("a.py");
  stack.add_frames()->set_path("b.py");
  const std::string text = SerializeDeterministic(stack);
  struct {
    uint32_t kind = 2, id = 1;
    uint64_t size;
  } const head{.size = text.size()};
  SessionMemory::Left::Piece piece{.kind = PieceKind::kDictionary,
                                   .memory = SessionMemory::Private()->AllocateRecords(4096),
                                   .listing = {},
                                   .facts = {},
                                   .hash = {},
                                   .used = (sizeof(head) + text.size() + 7) / 8 * 8};
  std::memcpy(piece.memory.get(), &head, sizeof(head));
  std::memcpy(piece.memory.get() + sizeof(head), text.data(), text.size());
  std::vector<SessionMemory::Left::Piece> pieces;
  pieces.push_back(std::move(piece));
  Dictionary dictionary;
  dictionary.Restore(std::move(pieces));
  ASSERT_TRUE(dictionary.has_stack(1));
  EXPECT_EQ(dictionary.stack(1).frames_size(), 2);
  EXPECT_EQ(dictionary.stack(1).frames(1).path(), "b.py");
}

TEST(DictionaryTest, EntriesStayWhereTheyAreWhileOthersAreAdded) {
  Dictionary dictionary;
  const std::string_view* const first = dictionary.parent(dictionary.DefineParent("first"));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) dictionary.DefineParent(Cat("p", i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*first, "first");
  std::set<ParentId> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(dictionary.DefineParent(Cat("p", i)));
  EXPECT_EQ(ids.size(), 1000);
  EXPECT_EQ(*ids.rbegin(), 1001);
}

}  // namespace
}  // namespace msprobe::core
