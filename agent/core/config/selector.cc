#include "agent/core/config/selector.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include "agent/core/config/json_values.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

constexpr std::array<std::string_view, 5> kPredicates = {"type", "name", "under", "depth", "api"};
constexpr int kDeepest = 64;  // brackets and ~ inside each other
constexpr std::string_view kModulePrefix = "Module.";

bool Fits(const std::string& glob, std::string_view text) {
  return fnmatch(glob.c_str(), std::string(text).c_str(), 0) == 0;
}

bool IsUnder(const std::string& glob, std::string_view path) {
  while (!path.empty()) {
    const size_t dot = path.rfind('.');
    path = path.substr(0, dot == std::string_view::npos ? 0 : dot);
    if (Fits(glob, path)) return true;
  }
  return false;
}

uint32_t DepthOf(std::string_view path) {
  return path.empty() ? 0 : 1 + static_cast<uint32_t>(std::count(path.begin(), path.end(), '.'));
}

bool FitsApi(const std::string& glob, std::string_view api) {
  return Fits(glob, api) || Fits(glob, api.substr(api.find('.') + 1));
}

}  // namespace

// Recursive descent; each method leaves at_ behind what it has read.
class Selector::Parser {
 public:
  Parser(std::string_view text, std::string_view field, Selector* selector)
      : text_(text), field_(field), selector_(*selector) {}

  absl::Status Parse() {
    absl::StatusOr<size_t> whole = Either();
    if (!whole.ok()) return whole.status();
    if (Next() != '\0') return Wrong("here should be &, | or the end");
    return absl::OkStatus();
  }

 private:
  absl::Status Wrong(std::string_view what) const { return WrongAt(at_, what); }
  absl::Status WrongAt(size_t at, std::string_view what) const {
    return absl::InvalidArgumentError(
        Cat(field_, " is invalid: at character ", at + 1, " of \"", text_, "\": ", what, "."));
  }

  // The next character that is no space; 0 at the end.
  char Next() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char character) {
    if (Next() != character) return false;
    ++at_;
    return true;
  }

  size_t Add(Node node) {
    selector_.nodes_.push_back(std::move(node));
    return selector_.nodes_.size() - 1;
  }

  absl::StatusOr<size_t> Either() {
    return Chain('|', Kind::kOr, [this] { return Chain('&', Kind::kAnd, [this] { return Single(); }); });
  }

  template <typename Part>
  absl::StatusOr<size_t> Chain(char between, Kind kind, Part part) {
    absl::StatusOr<size_t> left = part();
    while (left.ok() && Take(between)) {
      absl::StatusOr<size_t> right = part();
      if (!right.ok()) return right;
      left = Add({.kind = kind, .left = *left, .right = *right});
    }
    return left;
  }

  absl::StatusOr<size_t> Single() {
    if (++depth_ > kDeepest) return Wrong(Cat("more than ", kDeepest, " brackets and ~ are inside each other"));
    absl::StatusOr<size_t> found = Inside();
    --depth_;
    return found;
  }

  absl::StatusOr<size_t> Inside() {
    if (Take('~')) {
      absl::StatusOr<size_t> negated = Single();
      if (!negated.ok()) return negated;
      return Add({.kind = Kind::kNot, .left = *negated});
    }
    if (Take('(')) {
      absl::StatusOr<size_t> inner = Either();
      if (inner.ok() && !Take(')')) return Wrong("here should be )");
      return inner;
    }
    const size_t begin = (Next(), at_);
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    const std::string word(text_.substr(begin, at_ - begin));
    if (word.empty()) {
      return Wrong(Cat("here should be the name of a module's class, one of ", ShownList(kPredicates), ", ~ or ("));
    }
    if (!Take('(')) {
      selector_.reads_modules_ = true;
      return Add({.kind = Kind::kType, .glob = word});
    }
    const auto known = std::find(kPredicates.begin(), kPredicates.end(), word);
    if (known == kPredicates.end()) {
      return WrongAt(begin, Cat("no predicate is called ", word, "; it should be one of ", ShownList(kPredicates)));
    }
    Node node{
        .kind = static_cast<Kind>(static_cast<size_t>(Kind::kType) + static_cast<size_t>(known - kPredicates.begin()))};
    absl::Status status = node.kind == Kind::kDepth ? ReadDepth(&node) : ReadGlob(&node);
    if (!status.ok()) return status;
    if (!Take(')')) return Wrong("here should be )");
    (node.kind == Kind::kApi ? selector_.reads_apis_ : selector_.reads_modules_) = true;
    return Add(std::move(node));
  }

  absl::Status ReadGlob(Node* node) {
    const char quote = Next();
    if (quote != '"' && quote != '\'') return Wrong("here should be a text in quotes");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return Wrong("the text has no closing quote");
    node->glob = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return absl::OkStatus();
  }

  absl::Status ReadDepth(Node* node) {
    static constexpr std::pair<std::string_view, Order> kOrders[] = {{"<=", Order::kAtMost},
                                                                     {">=", Order::kAtLeast},
                                                                     {"==", Order::kEqual},
                                                                     {"<", Order::kLess},
                                                                     {">", Order::kMore}};
    Next();
    const auto order = std::find_if(std::begin(kOrders), std::end(kOrders),
                                    [&](const auto& each) { return text_.substr(at_).starts_with(each.first); });
    if (order == std::end(kOrders)) return Wrong("here should be <, <=, ==, >= or >, and a number");
    node->order = order->second;
    at_ += order->first.size();
    Next();
    const size_t begin = at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    if (at_ == begin || at_ - begin > 6) return WrongAt(begin, "here should be a number of 1 to 6 digits");
    node->depth = static_cast<uint32_t>(std::stoul(std::string(text_.substr(begin, at_ - begin))));
    return absl::OkStatus();
  }

  const std::string_view text_;
  const std::string_view field_;
  Selector& selector_;
  size_t at_ = 0;
  int depth_ = 0;
};

absl::StatusOr<Selector> Selector::Parse(std::string_view text, std::string_view field) {
  Selector selector;
  if (absl::Status status = Parser(text, field, &selector).Parse(); !status.ok()) return status;
  return selector;
}

Selector::Call Selector::OfModule(std::string_view record) {
  if (!record.starts_with(kModulePrefix)) return {};
  record.remove_prefix(kModulePrefix.size());
  const size_t dot = record.rfind('.');
  if (dot == std::string_view::npos) return {.in_module = true, .path = {}, .type = record, .api = {}};
  return {.in_module = true, .path = record.substr(0, dot), .type = record.substr(dot + 1), .api = {}};
}

bool Selector::MatchesFrom(size_t index, const Call& call) const {
  const Node& node = nodes_[index];
  switch (node.kind) {
    case Kind::kNot:
      return !MatchesFrom(node.left, call);
    case Kind::kAnd:
      return MatchesFrom(node.left, call) && MatchesFrom(node.right, call);
    case Kind::kOr:
      return MatchesFrom(node.left, call) || MatchesFrom(node.right, call);
    case Kind::kType:
      return call.in_module && Fits(node.glob, call.type);
    case Kind::kName:
      return call.in_module && Fits(node.glob, call.path);
    case Kind::kUnder:
      return call.in_module && IsUnder(node.glob, call.path);
    case Kind::kApi:
      return !call.api.empty() && FitsApi(node.glob, call.api);
    case Kind::kDepth:
      break;
  }
  const uint32_t depth = DepthOf(call.path);
  switch (node.order) {
    case Order::kLess:
      return call.in_module && depth < node.depth;
    case Order::kAtMost:
      return call.in_module && depth <= node.depth;
    case Order::kEqual:
      return call.in_module && depth == node.depth;
    case Order::kAtLeast:
      return call.in_module && depth >= node.depth;
    case Order::kMore:
      return call.in_module && depth > node.depth;
  }
  return false;
}

}  // namespace msprobe::core
