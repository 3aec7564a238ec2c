#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "server/metrics/catalogue.h"

namespace msprobe::server {

// The process's metrics and, where asked for, the port that serves them.
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
  // As last set or added up, of a histogram the number of measurements; 0 where never touched.
  double Value(Metric metric, std::initializer_list<std::string> labels = {}) const;

  // "host:port". Unavailable: the address cannot be bound.
  absl::Status Serve(const std::string& address);

 private:
  struct Registry;
  std::unique_ptr<Registry> registry_;
};

}  // namespace msprobe::server
