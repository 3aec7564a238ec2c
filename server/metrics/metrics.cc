#include "server/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"

namespace msprobe::server {
namespace {

prometheus::Histogram::BucketBoundaries Buckets() {
  prometheus::Histogram::BucketBoundaries bounds;
  for (double bound = 0.001; bound < 33; bound *= 2) bounds.push_back(bound);
  return bounds;
}

}  // namespace

struct Metrics::Registry {
  using Values = std::vector<std::string>;

  // The series of one metric.
  template <typename Kind>
  class SeriesOf {
   public:
    prometheus::Family<Kind>* family = nullptr;  // null: the metric is of another kind
    std::vector<std::string> labels;
    size_t max_series = 0;

    Kind* Find(const Values& values) const {
      const auto found = series_.find(values);
      return found == series_.end() ? nullptr : found->second.series;
    }
    Kind& Touch(const Values& values) {
      auto found = series_.find(values);
      if (found == series_.end()) {
        if (series_.size() >= max_series) Remove(Values(*order_.front()));
        found = series_.try_emplace(values).first;
        found->second.series = &family->Add(LabelsOf(values));
        order_.push_back(&found->first);
        found->second.place = std::prev(order_.end());
      } else {
        order_.splice(order_.end(), order_, found->second.place);
      }
      return *found->second.series;
    }
    void Remove(const Values& values) {
      const auto found = series_.find(values);
      if (found == series_.end()) return;
      family->Remove(found->second.series);
      order_.erase(found->second.place);
      series_.erase(found);
    }
    void RemoveWhere(const std::string& label, const std::string& value) {
      const auto at = std::find(labels.begin(), labels.end(), label) - labels.begin();
      std::vector<Values> gone;
      for (const auto& [values, series] : series_) {
        if (at < static_cast<ptrdiff_t>(values.size()) && values[at] == value) gone.push_back(values);
      }
      for (const Values& values : gone) Remove(values);
    }

   private:
    struct Entry {
      Kind* series = nullptr;
      typename std::list<const Values*>::iterator place;
    };
    prometheus::Labels LabelsOf(const Values& values) const {
      prometheus::Labels named;
      for (size_t i = 0; i < labels.size() && i < values.size(); ++i) named[labels[i]] = values[i];
      return named;
    }

    std::map<Values, Entry> series_;
    std::list<const Values*> order_;  // by last touch, the latest at the end
  };

  struct Family {
    SeriesOf<prometheus::Counter> counters;
    SeriesOf<prometheus::Gauge> gauges;
    prometheus::Histogram* histogram = nullptr;
  };

  absl::Mutex mutex;
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  std::array<Family, static_cast<size_t>(Metric::kCount)> families;
};

Metrics::Metrics() : registry_(std::make_unique<Registry>()) {
  for (const MetricRow& row : MetricCatalogue()) {
    Registry::Family& family = registry_->families[static_cast<size_t>(row.metric)];
    const std::string name(row.name), help(row.help);
    const auto prepare = [&row](auto& series, auto& registered) {
      series.family = &registered;
      series.max_series = row.max_series;
      if (!row.labels.empty()) series.labels = absl::StrSplit(std::string(row.labels), ',');
      // A metric without labels exists from the start, because a rate misses the first event of a series that begins
      // with that event.
      if (row.labels.empty()) series.Touch({});
    };
    if (row.type == MetricType::kCounter) {
      prepare(family.counters, prometheus::BuildCounter().Name(name).Help(help).Register(*registry_->registry));
    } else if (row.type == MetricType::kGauge) {
      prepare(family.gauges, prometheus::BuildGauge().Name(name).Help(help).Register(*registry_->registry));
    } else {
      auto& histograms = prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_->registry);
      family.histogram = &histograms.Add({}, Buckets());
    }
  }
}

Metrics::~Metrics() = default;

void Metrics::Add(Metric metric, double amount, std::initializer_list<std::string> labels) {
  absl::MutexLock lock(&registry_->mutex);
  Registry::Family& family = registry_->families[static_cast<size_t>(metric)];
  if (family.counters.family != nullptr) {
    family.counters.Touch(labels).Increment(amount);
  } else {
    family.gauges.Touch(labels).Increment(amount);
  }
}

void Metrics::Set(Metric metric, double value, std::initializer_list<std::string> labels) {
  absl::MutexLock lock(&registry_->mutex);
  Registry::Family& family = registry_->families[static_cast<size_t>(metric)];
  if (family.gauges.family != nullptr) family.gauges.Touch(labels).Set(value);
}

void Metrics::Observe(Metric metric, double seconds) {
  registry_->families[static_cast<size_t>(metric)].histogram->Observe(seconds);
}

void Metrics::Remove(Metric metric, std::initializer_list<std::string> labels) {
  absl::MutexLock lock(&registry_->mutex);
  registry_->families[static_cast<size_t>(metric)].gauges.Remove(labels);
}

void Metrics::ForgetRun(const std::string& run) {
  absl::MutexLock lock(&registry_->mutex);
  for (Registry::Family& family : registry_->families) {
    family.counters.RemoveWhere("run", run);
    family.gauges.RemoveWhere("run", run);
  }
}

double Metrics::Value(Metric metric, std::initializer_list<std::string> labels) const {
  absl::MutexLock lock(&registry_->mutex);
  const Registry::Family& family = registry_->families[static_cast<size_t>(metric)];
  if (const auto* counter = family.counters.Find(labels); counter != nullptr) return counter->Value();
  if (const auto* gauge = family.gauges.Find(labels); gauge != nullptr) return gauge->Value();
  if (family.histogram != nullptr) {
    return static_cast<double>(family.histogram->Collect().histogram.sample_count);
  }
  return 0;
}

std::string Metrics::Text() const { return prometheus::TextSerializer().Serialize(registry_->registry->Collect()); }

}  // namespace msprobe::server
