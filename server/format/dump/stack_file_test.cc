#include "server/format/dump/stack_file.h"

#include <gtest/gtest.h>

#include <string>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

std::string Listed(const std::vector<JsonText>& items) {
  std::string text;
  for (const JsonText& item : items) text += Cat(text.empty() ? "" : " ", item.text);
  return text;
}

std::string Stacks(std::string_view text) {
  std::string seen;
  const absl::Status status = ReadStacks(text, {}, [&](const DumpStack& stack) {
    seen += Cat(stack.key, stack.grouped ? " of " : "", Listed(stack.names), ": ", Listed(stack.lines), ";");
    return absl::OkStatus();
  });
  return status.ok() ? seen : std::string(StdView(status.message()));
}

std::string Parents(std::string_view text) {
  std::string seen;
  const absl::Status status =
      ReadParents(text, {}, [&](std::string_view name, const JsonText& parent, const JsonText&) {
        seen += Cat(name, ": ", parent.text, ";");
        return absl::OkStatus();
      });
  return status.ok() ? seen : std::string(StdView(status.message()));
}

TEST(StackFileTest, BothForms) {
  EXPECT_EQ(Stacks(R"({"0": [["a.0.forward", "b.0.forward"], ["x", "y"]], "1": [[], []]})"),
            R"(0 of "a.0.forward" "b.0.forward": "x" "y";1 of : ;)");
  EXPECT_EQ(Stacks(R"({"a.0.forward": ["x", "y"], "b.0.forward": []})"), R"(a.0.forward: "x" "y";b.0.forward: ;)");
  EXPECT_EQ(Stacks(R"({"0": [["a"], 3]})"), R"(0: ["a"] 3;)");  // neither; lines that are no texts
}

TEST(StackFileTest, RefusesWhatIsNoStackFile) {
  EXPECT_EQ(Stacks(R"({"0": 3})"), "0: a list is expected, not the number 3");
  EXPECT_EQ(Stacks(R"({"0": [)"), "line 1, column 8: the text ends inside an object or a list");
  EXPECT_EQ(Stacks("3"), "line 1, column 1: a JSON object is expected, not the number 3");
  EXPECT_EQ(Stacks("{} 3"), "line 1, column 4: something follows the value");
}

TEST(StackFileTest, TheVisitorMayRefuse) {
  const absl::Status status = ReadStacks(R"({"0": [], "1": []})", {}, [](const DumpStack& stack) {
    EXPECT_EQ(stack.key, "0");
    return absl::NotFoundError("enough");
  });
  EXPECT_TRUE(absl::IsNotFound(status));
}

TEST(StackFileTest, Parents) {
  EXPECT_EQ(Parents(R"({"megatron_micro_step_number": 2, "a": "b", "b": null, "c": ["d", 2], "d": [null, 0]})"),
            R"(megatron_micro_step_number: 2;a: "b";b: null;c: "d";d: null;)");
}

TEST(StackFileTest, RefusesWhatIsNoTreeOfModules) {
  EXPECT_EQ(Parents(R"({"a": 3})"), "a: the name of a module or null is expected, not the number 3");
  EXPECT_EQ(Parents(R"({"a": [3, 0]})"), "a: the name of a module or null is expected, not a list");
  EXPECT_EQ(Parents(R"({"a": ["b"]})"), "a: the name of a module or null is expected, not a list");
  EXPECT_EQ(Parents(R"({"b": "a", "a": "a"})"), "a: its parent a is itself; the module around it or null is expected");
  EXPECT_EQ(Parents(R"({"d": "a", "a": "b", "b": ["c", 1], "c": "a"})"),
            "a: its parent b is inside it; the module around it or null is expected");
  EXPECT_EQ(Parents(R"({"a": null, "b": "a", "a": "b"})"), "a stands there twice; leave one of them");
}

}  // namespace
}  // namespace msprobe::server
