#include "server/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
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

// Runs and ranks are named by users: without a bound, a year of runs would be a year of time series.
constexpr size_t kMostLabelValues = 1000;

}  // namespace

struct Metrics::Registry {
  struct Family {
    std::vector<std::string> labels;
    prometheus::Family<prometheus::Counter>* counter = nullptr;
    prometheus::Family<prometheus::Gauge>* gauge = nullptr;
    std::map<std::vector<std::string>, prometheus::Counter*> counters;
    std::map<std::vector<std::string>, prometheus::Gauge*> gauges;
  };

  prometheus::Labels Labels(const Family& family, const std::vector<std::string>& values) {
    prometheus::Labels labels;
    for (size_t i = 0; i < family.labels.size() && i < values.size(); ++i) labels[family.labels[i]] = values[i];
    return labels;
  }

  prometheus::Counter& Counter(Family& family, std::vector<std::string> values) {
    if (family.counters.size() >= kMostLabelValues && !family.counters.contains(values)) {
      values.assign(values.size(), "other");
    }
    auto& counter = family.counters[values];
    if (counter == nullptr) counter = &family.counter->Add(Labels(family, values));
    return *counter;
  }

  prometheus::Gauge& Gauge(Family& family, const std::vector<std::string>& values) {
    auto& gauge = family.gauges[values];
    if (gauge == nullptr) gauge = &family.gauge->Add(Labels(family, values));
    return *gauge;
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
    if (!row.labels.empty()) family.labels = absl::StrSplit(std::string(row.labels), ',');
    if (row.type == MetricType::kCounter) {
      family.counter = &prometheus::BuildCounter().Name(name).Help(help).Register(*registry_->registry);
    } else {
      family.gauge = &prometheus::BuildGauge().Name(name).Help(help).Register(*registry_->registry);
    }
    if (!row.labels.empty()) continue;
    // From the start: a counter that appears with its first event has no rate for it.
    if (row.type == MetricType::kCounter) {
      registry_->Counter(family, {});
    } else {
      registry_->Gauge(family, {});
    }
  }
}

Metrics::~Metrics() = default;

void Metrics::Add(Metric metric, double amount, std::initializer_list<std::string> labels) {
  absl::MutexLock lock(&registry_->mutex);
  Registry::Family& family = registry_->families[static_cast<size_t>(metric)];
  if (family.counter != nullptr) {
    registry_->Counter(family, labels).Increment(amount);
  } else {
    registry_->Gauge(family, labels).Increment(amount);
  }
}

void Metrics::Set(Metric metric, double value, std::initializer_list<std::string> labels) {
  absl::MutexLock lock(&registry_->mutex);
  Registry::Family& family = registry_->families[static_cast<size_t>(metric)];
  if (family.gauge != nullptr) registry_->Gauge(family, labels).Set(value);
}

double Metrics::Value(Metric metric, std::initializer_list<std::string> labels) const {
  absl::MutexLock lock(&registry_->mutex);
  const Registry::Family& family = registry_->families[static_cast<size_t>(metric)];
  if (auto found = family.counters.find(labels); found != family.counters.end()) return found->second->Value();
  if (auto found = family.gauges.find(labels); found != family.gauges.end()) return found->second->Value();
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
