#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace msprobe::core {

// The field `select`: a predicate over calls, such as
//
//   Linear & under("*.mlp") & depth(<=3) & ~name("*.norm")
//
//   TYPE, type("GLOB")   the module's class has this name
//   name("GLOB")         the module's name in the model matches: "layers.0.mlp"; the model's own is ""
//   under("GLOB")        it is inside of a module whose name matches
//   depth(<=N)           its name has so many parts; also <, ==, >= and >
//   api("GLOB")          the call is one of an API whose name matches: "Functional.linear", or "linear" of any prefix
//   ~  &  |  ( )         not, and, or; ~ binds most, | least
//
// A GLOB is the shell's; its * matches dots too. An API call stands where it is called: `module` means the innermost
// module around it. Outside of all modules none of their predicates holds. A parameter stands in its module.
//
// Immutable, and thread-safe.
class Selector {
 public:
  // InvalidArgument: what is wrong, at which character of the field, and what should stand there.
  static absl::StatusOr<Selector> Parse(std::string_view text, std::string_view field = "select");

  // What a predicate looks at.
  struct Call {
    bool in_module = false;  // path and type are those of a module
    std::string_view path;
    std::string_view type;
    std::string_view api;  // empty: it is a module's
  };
  // Of a module's record: its name without count, "Module.layers.0.mlp.MLP". Empty: of no module.
  static Call OfModule(std::string_view record);

  bool Matches(const Call& call) const { return MatchesFrom(nodes_.size() - 1, call); }
  bool reads_modules() const { return reads_modules_; }
  bool reads_apis() const { return reads_apis_; }

 private:
  enum class Kind : uint8_t { kNot, kAnd, kOr, kType, kName, kUnder, kDepth, kApi };
  enum class Order : uint8_t { kLess, kAtMost, kEqual, kAtLeast, kMore };
  struct Node {
    Kind kind;
    std::string glob = {};
    Order order = Order::kEqual;
    uint32_t depth = 0;
    size_t left = 0, right = 0;  // of nodes_; left alone under kNot
  };
  class Parser;

  Selector() = default;
  bool MatchesFrom(size_t node, const Call& call) const;

  std::vector<Node> nodes_;  // the whole is the last
  bool reads_modules_ = false;
  bool reads_apis_ = false;
};

}  // namespace msprobe::core
