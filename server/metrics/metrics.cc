#include "server/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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
  struct Family {
    std::vector<std::string> labels;
    size_t most_series = 0;
    prometheus::Family<prometheus::Counter>* counter = nullptr;
    prometheus::Family<prometheus::Gauge>* gauge = nullptr;
    prometheus::Histogram* histogram = nullptr;
    std::map<std::vector<std::string>, prometheus::Counter*> counters;
    std::map<std::vector<std::string>, prometheus::Gauge*> gauges;
  };

  prometheus::Labels Labels(const Family& family, const std::vector<std::string>& values) {
    prometheus::Labels labels;
    for (size_t i = 0; i < family.labels.size() && i < values.size(); ++i) labels[family.labels[i]] = values[i];
    return labels;
  }

  prometheus::Counter& Counter(Family& family, std::vector<std::string> values) {
    if (family.counters.size() >= family.most_series && !family.counters.contains(values)) {
      values.assign(values.size(), "other");
    }
    auto& counter = family.counters[values];
    if (counter == nullptr) counter = &family.counter->Add(Labels(family, values));
    return *counter;
  }

  // Null: there are too many.
  prometheus::Gauge* Gauge(Family& family, const std::vector<std::string>& values) {
    if (family.gauges.size() >= family.most_series && !family.gauges.contains(values)) return nullptr;
    auto& gauge = family.gauges[values];
    if (gauge == nullptr) gauge = &family.gauge->Add(Labels(family, values));
    return gauge;
  }

  absl::Mutex mutex;
  std::shared_ptr<prometheus::Registry> registry = std::make_shared<prometheus::Registry>();
  std::array<Family, static_cast<size_t>(Metric::kCount)> families;
  std::unique_ptr<prometheus::Exposer> exposer;
};

Metrics::Metrics() : registry_(std::make_unique<Registry>()) {
  for (const MetricRow& row : MetricCatalogue()) {
    Registry::Family& family = registry_->families[static_cast<size_t>(row.metric)];
    const std::string name(row.name), help(row.help);
    family.most_series = row.most_series;
    if (!row.labels.empty()) family.labels = absl::StrSplit(std::string(row.labels), ',');
    if (row.type == MetricType::kCounter) {
      family.counter = &prometheus::BuildCounter().Name(name).Help(help).Register(*registry_->registry);
    } else if (row.type == MetricType::kGauge) {
      family.gauge = &prometheus::BuildGauge().Name(name).Help(help).Register(*registry_->registry);
    } else {
      auto& histograms = prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_->registry);
      family.histogram = &histograms.Add({}, Buckets());
    }
    // What has no labels is there from the start: a rate does not see the first event of a series that begins with it.
    if (row.labels.empty() && family.counter != nullptr) registry_->Counter(family, {});
    if (row.labels.empty() && family.gauge != nullptr) registry_->Gauge(family, {});
  }
}

Metrics::~Metrics() = default;

void Metrics::Add(Metric metric, double amount, std::initializer_list<std::string> labels) {
  absl::MutexLock lock(&registry_->mutex);
  Registry::Family& family = registry_->families[static_cast<size_t>(metric)];
  if (family.counter != nullptr) {
    registry_->Counter(family, labels).Increment(amount);
  } else if (auto* gauge = registry_->Gauge(family, labels); gauge != nullptr) {
    gauge->Increment(amount);
  }
}

void Metrics::Set(Metric metric, double value, std::initializer_list<std::string> labels) {
  absl::MutexLock lock(&registry_->mutex);
  Registry::Family& family = registry_->families[static_cast<size_t>(metric)];
  if (family.gauge == nullptr) return;
  if (auto* gauge = registry_->Gauge(family, labels); gauge != nullptr) gauge->Set(value);
}

void Metrics::Observe(Metric metric, double seconds) {
  registry_->families[static_cast<size_t>(metric)].histogram->Observe(seconds);
}

void Metrics::Remove(Metric metric, std::initializer_list<std::string> labels) {
  absl::MutexLock lock(&registry_->mutex);
  Registry::Family& family = registry_->families[static_cast<size_t>(metric)];
  const auto found = family.gauges.find(labels);
  if (found == family.gauges.end()) return;
  family.gauge->Remove(found->second);
  family.gauges.erase(found);
}

double Metrics::Value(Metric metric, std::initializer_list<std::string> labels) const {
  absl::MutexLock lock(&registry_->mutex);
  const Registry::Family& family = registry_->families[static_cast<size_t>(metric)];
  if (auto found = family.counters.find(labels); found != family.counters.end()) return found->second->Value();
  if (auto found = family.gauges.find(labels); found != family.gauges.end()) return found->second->Value();
  if (family.histogram != nullptr) {
    return static_cast<double>(family.histogram->Collect().histogram.sample_count);
  }
  return 0;
}

absl::Status Metrics::Serve(const std::string& address) {
  try {
    registry_->exposer = std::make_unique<prometheus::Exposer>(address);
  } catch (const std::exception& error) {  // prometheus-cpp knows no other way
    return absl::UnavailableError(absl::StrCat("cannot serve metrics at ", address, ": ", error.what()));
  }
  registry_->exposer->RegisterCollectable(registry_->registry);
  return absl::OkStatus();
}

}  // namespace msprobe::server
