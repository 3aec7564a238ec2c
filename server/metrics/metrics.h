#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include "server/metrics/catalogue.h"

namespace msprobe::server {

// The metrics of the process.
//
// A metric has at most MetricRow::max_series sets of label values at once. One more replaces the set that was changed
// longest ago; if the replaced set is changed again, it starts from the beginning.
// Threads: any.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Label values come in the order of the catalogue.
  void Add(Metric metric, double amount, std::initializer_list<std::string> labels = {});
  void Set(Metric metric, double value, std::initializer_list<std::string> labels = {});
  // Adds one measurement, in seconds, to a histogram. Its buckets go from 1 ms to 32 s, each twice the one before.
  void Observe(Metric metric, double seconds);
  // Removes a series of a gauge until it is set again.
  void Remove(Metric metric, std::initializer_list<std::string> labels);
  // Removes the series with this value of the label "run" from every metric.
  void ForgetRun(const std::string& run);
  // The current value; for a histogram the number of measurements. 0 for a series that does not exist.
  double Value(Metric metric, std::initializer_list<std::string> labels = {}) const;

  // All metrics in the format that Prometheus reads: "text/plain; version=0.0.4".
  std::string Text() const;

 private:
  struct Registry;
  std::unique_ptr<Registry> registry_;
};

}  // namespace msprobe::server
