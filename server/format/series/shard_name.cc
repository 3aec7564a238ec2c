#include "server/format/series/shard_name.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kMostRanks = 1 << 16;

std::optional<uint32_t> Number(absl::string_view text) {
  uint32_t number = 0;
  if (!absl::SimpleAtoi(text, &number) || number >= uint32_t{1} << 31) return std::nullopt;
  return number;
}

// Adds what "3", "0-3" or "0-6+2" names. False: it is none of these.
bool AddRange(absl::string_view text, std::vector<uint32_t>& ranks) {
  const std::vector<absl::string_view> ends = absl::StrSplit(text, absl::MaxSplits('-', 1));
  const std::optional<uint32_t> first = Number(ends[0]);
  if (!first.has_value()) return false;
  std::optional<uint32_t> last = first, stride = 1;
  if (ends.size() == 2) {
    const std::vector<absl::string_view> parts = absl::StrSplit(ends[1], absl::MaxSplits('+', 1));
    last = Number(parts[0]);
    if (parts.size() == 2) stride = Number(parts[1]);
  }
  if (!last.has_value() || !stride.has_value() || *last < *first || *stride == 0) return false;
  if ((*last - *first) / *stride >= kMostRanks - std::min<size_t>(ranks.size(), kMostRanks)) return false;
  for (uint64_t rank = *first; rank <= *last; rank += *stride) ranks.push_back(static_cast<uint32_t>(rank));
  return true;
}

std::optional<std::vector<uint32_t>> RanksOf(std::string_view group) {
  std::vector<uint32_t> ranks;
  for (absl::string_view range : absl::StrSplit(absl::string_view(group.data(), group.size()), ',')) {
    if (!AddRange(range, ranks)) return std::nullopt;
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::optional<uint64_t> Elements(std::string_view text) {
  uint64_t number = 0;
  if (!absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &number)) return std::nullopt;
  return number;
}

}  // namespace

std::optional<ShardName> ShardName::Of(std::string_view series) {
  const size_t mark = series.rfind(kShardMark);
  if (mark == std::string_view::npos) return std::nullopt;
  const std::string_view rest = series.substr(mark + kShardMark.size());
  const size_t slash = rest.find('/'), at = rest.find('@'), end = rest.find("):");
  if (slash == std::string_view::npos || at == std::string_view::npos || end == std::string_view::npos) {
    return std::nullopt;
  }
  if (slash > at || at > end) return std::nullopt;
  const auto elements = Elements(rest.substr(0, slash)), whole = Elements(rest.substr(slash + 1, at - slash - 1));
  const ShardName name{.tensor = series.substr(0, mark),
                       .elements = elements.value_or(0),
                       .whole = whole.value_or(0),
                       .group = rest.substr(at + 1, end - at - 1),
                       .statistic = rest.substr(end + 2)};
  const bool is_part = name.elements > 0 && name.elements <= name.whole;
  if (!is_part || name.statistic.empty() || !RanksOf(name.group).has_value()) return std::nullopt;
  return name;
}

std::vector<uint32_t> ShardName::Ranks() const { return RanksOf(group).value_or(std::vector<uint32_t>{0}); }

}  // namespace msprobe::server
