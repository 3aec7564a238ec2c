#include "server/format/tensor_file/pickle_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace msprobe::server {
namespace {

using ::testing::HasSubstr;
using Kind = PickleValue::Kind;
using std::string_literals::operator""s;

std::string ErrorOf(std::string_view pickle) { return std::string(PickleTree::Parse(pickle).status().message()); }

TEST(PickleTree, KeepsACallAsAValue) {
  // pickle.dumps of an object whose __reduce__ is (os.system, ("true",)).
  const auto tree = PickleTree::Parse(
      "\x80\x02"
      "cposix\nsystem\nX\x04\0\0\0true\x85R."s);
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->root().kind, Kind::kObject);
  EXPECT_EQ(tree->CalledBy(tree->root()), "posix system");
}

TEST(PickleTree, FindsKeysOfDictsAndOfStates) {
  // {"a": 1} of protocol 4, and an object built with that state.
  const std::string dict =
      "}\x8c\x01"
      "aK\x01s";
  const auto tree = PickleTree::Parse("\x80\x04" + dict + ".");
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->Find(tree->root(), "a")->integer, 1);
  EXPECT_EQ(tree->Find(tree->root(), "b"), nullptr);
  const auto object = PickleTree::Parse(
      "\x80\x04"
      "cm\nC\n)\x81" +
      dict + "b.");
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_EQ(object->Find(object->root(), "a")->integer, 1);
}

TEST(PickleTree, ReadsNegativeAndLongIntegers) {
  const auto tree = PickleTree::Parse("\x80\x02\x8a\x05\0\0\0\0\xff."s);
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(tree->root().integer, -(int64_t{1} << 32));
}

TEST(PickleTree, NamesWhatItDoesNotRead) {
  EXPECT_THAT(ErrorOf("\x80\x02(S'a'\nios\nsystem\n."), HasSubstr("the opcode STRING, which is not read"));
  EXPECT_THAT(ErrorOf("(ios\nsystem\n."), HasSubstr("the opcode INST, which is not read"));
  EXPECT_THAT(ErrorOf("\xff."), HasSubstr("unknown opcode 0xff"));
  EXPECT_THAT(ErrorOf("\x80\x09."s), HasSubstr("unknown protocol 9"));
}

TEST(PickleTree, RefusesBytesThatAreNoPickle) {
  for (const std::string& bytes : {""s, "X\xff\xff\xff\xff"s, "R."s, "."s, "t."s, "h\x05."s, "(K\x01s."s, "cos\n"s,
                                   "\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
                                   "a"s}) {
    EXPECT_FALSE(PickleTree::Parse(bytes).ok()) << testing::PrintToString(bytes);
  }
  // Every beginning of a good one.
  const std::string good =
      "\x80\x04}\x8c\x01"
      "a(K\x01K\x02t\x94s."s;
  ASSERT_TRUE(PickleTree::Parse(good).ok());
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(PickleTree::Parse(good.substr(0, size)).ok());
}

}  // namespace
}  // namespace msprobe::server
