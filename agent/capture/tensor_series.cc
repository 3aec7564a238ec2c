#include "agent/capture/tensor_series.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_join.h"
#include "agent/capture/fragments/fragment_builder.h"
#include "agent/core/str_cat.h"

namespace msprobe::capture {
namespace {

// Those of the server. Where there are none the name of the records says so.
std::string OfServer(const std::vector<std::string>& statistics) {
  std::vector<std::string> chosen;
  for (const std::string& each : statistics) {
    if (!SpreadStatistic::Named(each).has_value()) chosen.push_back(each);
  }
  return chosen.empty() ? "none" : absl::StrJoin(chosen, ",");
}

std::vector<std::pair<std::string, SpreadStatistic>> OfSpread(const std::vector<std::string>& statistics) {
  std::vector<std::pair<std::string, SpreadStatistic>> chosen;
  for (const std::string& each : statistics) {
    if (const auto statistic = SpreadStatistic::Named(each)) chosen.emplace_back(each, *statistic);
  }
  return chosen;
}

Spread::Parts PartsOf(const std::vector<std::pair<std::string, SpreadStatistic>>& statistics) {
  Spread::Parts parts;
  for (const auto& [name, statistic] : statistics) {
    parts.distribution |= statistic.parts().distribution;
    parts.formats |= statistic.parts().formats;
  }
  return parts;
}

}  // namespace

void TensorSeries::KeepLastOfEach(std::vector<Point>& points) {
  std::unordered_map<std::string, size_t> last;
  for (size_t i = 0; i < points.size(); ++i) last[points[i].name] = i;
  size_t kept = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    if (last.at(points[i].name) != i) continue;
    if (kept != i) points[kept] = std::move(points[i]);
    ++kept;
  }
  points.erase(points.begin() + static_cast<std::ptrdiff_t>(kept), points.end());
}

TensorSeries::TensorSeries(const std::vector<std::string>& statistics, core::Session* session, TensorSource* source,
                           Faults* faults)
    : statistics_(OfServer(statistics)),
      spread_(OfSpread(statistics)),
      session_(*session),
      source_(*source),
      faults_(*faults),
      memory_({}, session, nullptr, PartsOf(spread_)),
      structures_(session) {}

void TensorSeries::Read(std::string_view name, absl::FunctionRef<TensorReading(const MemoryReader& memory)> read) {
  OpenRecord record;
  faults_.Contain(record, [&] {
    TensorReading reading = read(memory_);
    if (reading.spread != nullptr) AddSpread(name, *std::exchange(reading.spread, nullptr));
    Keep({.name = std::string(name), .reading = std::move(reading), .value = 0});
  });
}

void TensorSeries::AddSpread(std::string_view name, const Spread& spread) {
  for (const auto& [statistic, number] : spread_) {
    const double value = number.Of(spread);
    if (std::isfinite(value)) Add(core::Cat(name, ":", statistic), value);
  }
}

void TensorSeries::Add(std::string_view name, double value) {
  Keep({.name = std::string(name), .reading = std::nullopt, .value = value});
}

void TensorSeries::Keep(Point point) {
  core::MutexLock lock(&mu_);
  points_.push_back(std::move(point));
  if (points_.size() < compact_at_) return;  // else nobody has ended the step for long
  KeepLastOfEach(points_);
  compact_at_ = std::max(kCompactAt, 2 * points_.size());
}

void TensorSeries::Forget() {
  core::MutexLock lock(&mu_);
  points_.clear();
  before_.clear();
}

void TensorSeries::BeforeUpdate(std::string_view name, std::vector<double> elements) {
  core::MutexLock lock(&mu_);
  before_.insert_or_assign(std::string(name), std::move(elements));
}

void TensorSeries::AfterUpdate(std::string_view name, std::string_view shard, std::span<const double> elements) {
  std::vector<double> before;
  {
    core::MutexLock lock(&mu_);
    const auto found = before_.find(name);
    if (found == before_.end()) return;
    before = std::move(found->second);
    before_.erase(found);
  }
  if (before.size() != elements.size() || before.empty()) return;
  double changed = 0, whole = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    changed += (elements[i] - before[i]) * (elements[i] - before[i]);
    whole += before[i] * before[i];
  }
  if (!shard.empty()) {
    const double count = static_cast<double>(before.size());
    Add(core::Cat("update_ratio/", name, shard, ":change"), std::sqrt(changed / count));
    Add(core::Cat("update_ratio/", name, shard, ":before"), std::sqrt(whole / count));
  } else if (whole != 0) {
    Add(core::Cat("update_ratio/", name), std::sqrt(changed / whole));
  }
}

void TensorSeries::Send(uint32_t step) {
  std::vector<Point> points;
  {
    core::MutexLock lock(&mu_);
    points.swap(points_);
  }
  KeepLastOfEach(points);
  OpenRecord record;
  record.step = step;
  faults_.Contain(record, [&] {
    source_.Flush();
    const std::span<const Point> all = points;
    for (size_t begin = 0; begin < all.size(); begin += kMostPoints) {
      Emit(step, all.subspan(begin, std::min(kMostPoints, all.size() - begin)));
    }
  });
}

void TensorSeries::Emit(uint32_t step, std::span<const Point> points) {
  FragmentBuilder builder;
  builder.Start(statistics_, core::RecordKind::kScalars, core::Direction::kForward);
  for (const Point& point : points) {
    builder.Key(point.name);
    if (point.reading.has_value()) {
      builder.Tensor(*point.reading);
    } else {
      builder.Float(point.value);
    }
  }
  core::Fragment fragment;
  fragment.step = step;
  fragment.structure = structures_.Of(builder);
  fragment.flags = core::kEnter | core::kExit;
  builder.Fill(fragment);
  session_.Emit(fragment);
}

}  // namespace msprobe::capture
