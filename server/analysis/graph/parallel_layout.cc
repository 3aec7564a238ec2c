#include "server/analysis/graph/parallel_layout.h"

#include <algorithm>

#include "absl/strings/str_split.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

struct SubGroup {
  std::string name;
  uint32_t size = 1;
};

// The parts in their order, those that it does not name last. ep is 1 and left out.
std::vector<SubGroup> PartsOf(const ParallelLayout& layout) {
  std::vector<SubGroup> parts;
  for (absl::string_view piece : absl::StrSplit(layout.order, '-')) {
    if (piece != "ep") parts.push_back({std::string(piece), 1});
  }
  for (const char* name : {"tp", "pp", "dp", "cp"}) {
    if (std::none_of(parts.begin(), parts.end(), [&](const SubGroup& part) { return part.name == name; })) {
      parts.push_back({name, 1});
    }
  }
  for (SubGroup& part : parts) {
    if (part.name == "tp") part.size = layout.tensor;
    if (part.name == "pp") part.size = layout.pipeline;
    if (part.name == "dp") part.size = layout.ranks / (layout.tensor * layout.pipeline);
  }
  return parts;
}

// The numbers that those of the parts give whose membership in `wanted` is `in`, first part fastest.
std::vector<uint32_t> NumbersOf(const std::vector<SubGroup>& parts, std::string_view wanted, bool in) {
  std::vector<uint32_t> numbers = {0};
  uint32_t stride = 1;
  for (const SubGroup& part : parts) {
    if ((part.name == wanted) == in) {
      const size_t known = numbers.size();
      for (uint32_t i = 1; i < part.size; ++i) {
        for (size_t k = 0; k < known; ++k) numbers.push_back(numbers[k] + i * stride);
      }
    }
    stride *= part.size;
  }
  return numbers;
}

}  // namespace

absl::Status CheckLayout(const ParallelLayout& layout) {
  const auto wrong = [&](std::string_view why) {
    return absl::InvalidArgumentError(Cat("the layout of ", layout.ranks, " ranks, tp ", layout.tensor, ", pp ",
                                          layout.pipeline, ", vpp ", layout.chunks, " and order ", layout.order,
                                          " is not possible: ", why));
  };
  if (layout.ranks == 0 || layout.tensor == 0 || layout.pipeline == 0 || layout.chunks == 0)
    return wrong("each must be 1 or more");
  if (uint64_t{layout.tensor} * layout.pipeline > layout.ranks ||
      layout.ranks % (layout.tensor * layout.pipeline) != 0) {
    return wrong("the number of ranks must be a multiple of tp times pp");
  }
  if (layout.chunks > 1 && layout.pipeline == 1) return wrong("a virtual pipeline (vpp) needs a pp of 2 or more");
  std::vector<absl::string_view> seen;
  for (absl::string_view piece : absl::StrSplit(layout.order, '-')) {
    if (piece != "tp" && piece != "cp" && piece != "ep" && piece != "dp" && piece != "pp") {
      return wrong("the order has names of tp, cp, ep, dp and pp with - between them");
    }
    if (std::find(seen.begin(), seen.end(), piece) != seen.end()) return wrong("the order has a name twice");
    seen.push_back(piece);
  }
  for (const SubGroup& part : PartsOf(layout)) {
    if (part.size > 1 && std::find(seen.begin(), seen.end(), part.name) == seen.end()) {
      return wrong(Cat("the order lacks ", part.name));
    }
  }
  return absl::OkStatus();
}

RankGroups GroupsOf(const ParallelLayout& layout, std::string_view part) {
  const std::vector<SubGroup> parts = PartsOf(layout);
  RankGroups groups;
  for (const uint32_t first : NumbersOf(parts, part, /*in=*/false)) {
    std::vector<uint32_t>& group = groups.emplace_back();
    for (const uint32_t member : NumbersOf(parts, part, /*in=*/true)) group.push_back(first + member);
  }
  return groups;
}

}  // namespace msprobe::server
