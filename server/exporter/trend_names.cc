#include "server/exporter/trend_names.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <utility>

#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using Parts = std::span<const std::string_view>;

std::string Joined(Parts parts) {
  std::string text;
  for (std::string_view part : parts) {
    if (!text.empty()) text += '.';
    text += part;
  }
  return text;
}

std::optional<TrendMetric> MetricOf(std::string_view part) {
  if (part == "forward") return TrendMetric::kForward;
  if (part == "backward") return TrendMetric::kBackward;
  if (part == "parameters_grad") return TrendMetric::kParametersGrad;
  return std::nullopt;
}

std::vector<TrendTag> Sorted(std::vector<TrendTag> tags) {
  std::sort(tags.begin(), tags.end());
  tags.erase(std::unique(tags.begin(), tags.end()), tags.end());
  return tags;
}

}  // namespace

std::optional<TrendRecord> TrendRecordOf(std::string_view full_name) {
  std::vector<std::string_view> parts = PartsOfName(full_name);
  // The direction is the last part of an API call, and the last but one of a module.
  for (size_t back = 1; back <= 2 && back <= parts.size(); ++back) {
    const size_t at = parts.size() - back;
    const std::optional<TrendMetric> metric = MetricOf(parts[at]);
    if (!metric) continue;
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(at));
    TrendRecord record{*metric, {}, 0};
    if (!parts.empty() && IsNumberPart(parts.back())) {
      const std::string_view number = parts.back();
      std::from_chars(number.data(), number.data() + number.size(), record.call);
      parts.pop_back();
    }
    record.name = Joined(parts);
    return record;
  }
  return std::nullopt;
}

std::vector<TrendTag> TagsOfTensor(std::string_view target) {
  const std::vector<std::string_view> parts = PartsOfName(target);
  if (parts.size() < 3) return {};
  const size_t value = parts.size() - 2;  // where "input.0" begins
  std::vector<TrendTag> tags = {{Joined(Parts(parts).subspan(value)), "index"}};
  if (std::find(parts.begin(), parts.end(), "parameters") != parts.end()) tags.push_back({"parameters", "default"});
  std::vector<std::string_view> rest;
  bool module = false;
  for (size_t i = 0; i < value; ++i) {
    if (IsModuleKind(parts[i])) {
      tags.push_back({std::string(parts[i]), "default"});
      module = true;
    } else {
      rest.push_back(parts[i]);
    }
  }
  if (rest.empty()) return {};
  if (!module) {
    tags.push_back({Joined(rest), "function"});
    return Sorted(std::move(tags));
  }
  // "blocks.3.layer.1.conv" is the layers blocks.3 and layer.1, and the module conv.
  const auto add_module = [&](size_t begin, size_t end) {
    if (begin < end) tags.push_back({Joined(Parts(rest).subspan(begin, end - begin)), "module"});
  };
  size_t begin = 0;  // of what belongs to no layer yet
  for (size_t i = 0; i < rest.size(); ++i) {
    if (!IsNumberPart(rest[i])) continue;
    if (i > begin) {
      tags.push_back({Cat(rest[i - 1], ".", rest[i]), "layer"});
      add_module(begin, i - 1);
    }
    begin = i + 1;
  }
  add_module(begin, rest.size());
  return Sorted(std::move(tags));
}

std::vector<TrendTag> TagsOfWatched(std::string_view target) {
  const std::vector<std::string_view> parts = PartsOfName(target);
  std::vector<TrendTag> tags;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!IsNumberPart(parts[i])) {
      tags.push_back({std::string(parts[i]), "module"});
    } else if (i > 0 && !IsNumberPart(parts[i - 1])) {
      tags.push_back({Cat(parts[i - 1], ".", parts[i]), "layer"});
    }
  }
  return Sorted(std::move(tags));
}

}  // namespace msprobe::server
