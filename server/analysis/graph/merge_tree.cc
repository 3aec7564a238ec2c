#include "server/analysis/graph/merge_tree.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server::merge {

std::string Replaced(std::string_view text, std::string_view from, std::string_view to) {
  return absl::StrReplaceAll(AbslView(text), {{AbslView(from), AbslView(to)}});
}

void Rename(Node& node, const std::string& from, std::string to) {
  node.name = std::move(to);
  for (std::vector<Value>* values : {&node.inputs, &node.outputs}) {
    for (Value& value : *values) value.name = Replaced(value.name, from, node.name);
  }
}

std::string WithRank(std::string_view name, std::string_view rank) {
  std::vector<std::string> parts;
  for (std::string_view part : PartsOfName(name)) parts.emplace_back(part);
  if (parts.size() > 1) parts[1] += Cat("_rank", rank);
  return absl::StrJoin(parts, ".");
}

std::vector<std::pair<size_t, size_t>> LayerNumbers(std::string_view name) {
  std::vector<std::pair<size_t, size_t>> places;
  for (size_t at = name.find("layer"); at != std::string_view::npos; at = name.find("layer", at + 1)) {
    size_t begin = at + 5;
    if (begin < name.size() && name[begin] == 's') ++begin;
    if (begin >= name.size() || name[begin] != '.') continue;
    size_t end = ++begin;
    while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
    if (end > begin && end < name.size() && name[end] == '.') places.emplace_back(begin, end);
  }
  return places;
}

bool IsLayer(std::string_view name) { return !LayerNumbers(name).empty(); }

std::string WithLayer(std::string name, std::string_view number) {
  const auto places = LayerNumbers(name);
  for (size_t i = places.size(); i-- > 0;) {
    name.replace(places[i].first, places[i].second - places[i].first, number);
  }
  return name;
}

std::optional<Mark> MarkOf(std::string_view name) {
  const size_t second = name.rfind('%');
  if (second == std::string_view::npos || second == 0) return std::nullopt;
  const size_t first = name.rfind('%', second - 1);
  if (first == std::string_view::npos) return std::nullopt;
  Mark mark;
  mark.begin = first;
  if (!absl::SimpleAtoi(AbslView(name.substr(first + 1, second - first - 1)), &mark.position) ||
      !absl::SimpleAtoi(AbslView(name.substr(second + 1)), &mark.rank)) {
    return std::nullopt;
  }
  return mark;
}

bool IsForward(std::string_view name) {
  return name.find(".forward.") != std::string_view::npos || name.find(".forward%") != std::string_view::npos;
}

bool IsApart(std::string_view name) { return name == "optimizer" || name == "clip_grad"; }

std::vector<std::string> Around(const Node& node) {
  std::vector<std::string> names;
  for (const Node* at = node.parent; at != nullptr; at = at->parent) names.push_back(at->name);
  return names;
}

}  // namespace msprobe::server::merge
