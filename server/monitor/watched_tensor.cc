#include "server/monitor/watched_tensor.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_split.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr size_t kLongestName = 32;
constexpr auto kStatisticNames =
    std::to_array<std::pair<std::string_view, Statistic>>({{"max", Statistic::kMax},
                                                           {"min", Statistic::kMin},
                                                           {"mean", Statistic::kMean},
                                                           {"norm", Statistic::kNorm},
                                                           {"std", Statistic::kStd},
                                                           {"rms", Statistic::kRms},
                                                           {"abs_max", Statistic::kAbsMax}});

bool IsName(std::string_view name) {
  const bool fits = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  return fits && !name.empty() && name.size() <= kLongestName;
}

absl::StatusOr<WatchedTensor> ParseOne(const std::string& part) {
  const auto wrong = [&](std::string_view why) {
    return absl::InvalidArgumentError(Cat("--watch: \"", part, "\" ", why,
                                          "; an entry is NAME=GLOB:STATISTIC, e.g. loss=*cross_entropy*.output.0:max"));
  };
  const size_t equals = part.find('=');
  const size_t colon = part.rfind(':');
  if (equals == std::string::npos || colon == std::string::npos || colon < equals) return wrong("lacks = or :");
  WatchedTensor watched;
  watched.name = part.substr(0, equals);
  watched.glob = part.substr(equals + 1, colon - equals - 1);
  const std::string statistic = part.substr(colon + 1);
  if (!IsName(watched.name)) return wrong("has a NAME that is not 1 to 32 letters, digits and _");
  if (watched.glob.empty()) return wrong("has no GLOB");
  const auto found = std::find_if(kStatisticNames.begin(), kStatisticNames.end(),
                                  [&](const auto& known) { return known.first == statistic; });
  if (found == kStatisticNames.end()) return wrong("has none of max, min, mean, norm, std, rms, abs_max");
  watched.statistic = found->second;
  return watched;
}

}  // namespace

absl::StatusOr<std::vector<WatchedTensor>> ParseWatched(std::string_view text) {
  std::vector<WatchedTensor> all;
  const std::vector<std::string> parts = absl::StrSplit(std::string(text), ',', absl::SkipEmpty());
  if (parts.size() > kMaxWatched) {
    return absl::InvalidArgumentError(Cat("--watch has ", parts.size(), " entries, allowed are ", kMaxWatched));
  }
  for (const std::string& part : parts) {
    auto watched = ParseOne(part);
    if (!watched.ok()) return watched.status();
    for (const WatchedTensor& other : all) {
      if (other.name == watched->name) {
        return absl::InvalidArgumentError(Cat("--watch: the name \"", other.name, "\" stands twice"));
      }
    }
    all.push_back(*std::move(watched));
  }
  return all;
}

}  // namespace msprobe::server
