#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include "server/metrics/catalogue.h"

namespace msprobe::server {

// The process's metrics.
//
// A metric has MetricRow::max_series sets of label values at once, whatever users name their runs. One more takes the
// place of the one that was changed longest ago, which begins anew when it is changed again.
// Threads: every method from any thread.
class Metrics {
 public:
  Metrics();
  ~Metrics();

  // Labels in the order of the catalogue.
  void Add(Metric metric, double amount, std::initializer_list<std::string> labels = {});
  void Set(Metric metric, double value, std::initializer_list<std::string> labels = {});
  // One measurement of a histogram, in seconds: buckets from 1 ms to 32 s, each twice the one before.
  void Observe(Metric metric, double seconds);
  // Of a gauge: the series is gone until it is set again.
  void Remove(Metric metric, std::initializer_list<std::string> labels);
  // Of every metric: the series with this value of the label "run" are gone.
  void ForgetRun(const std::string& run);
  // As last set or added up, of a histogram the number of measurements; 0 where never touched.
  double Value(Metric metric, std::initializer_list<std::string> labels = {}) const;

  // As Prometheus reads it: "text/plain; version=0.0.4".
  std::string Text() const;

 private:
  struct Registry;
  std::unique_ptr<Registry> registry_;
};

}  // namespace msprobe::server
