#include "server/metrics/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

namespace msprobe::server {
namespace {

TEST(MetricCatalogue, RowsStandInTheOrderOfTheirEnum) {
  size_t index = 0;
  std::set<std::string_view> names;
  for (const MetricRow& row : MetricCatalogue()) {
    EXPECT_EQ(static_cast<size_t>(row.metric), index++) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name << " stands twice";
    EXPECT_EQ(row.type == MetricType::kCounter, row.name.ends_with("_total")) << row.name;
  }
}

TEST(MetricCatalogue, DocumentIsCurrent) {
  const std::string path = std::string(MSPROBE_SOURCE_DIR) + "/docs/metrics.md";
  if (std::getenv("MSPROBE_UPDATE_DOCS") != nullptr) std::ofstream(path) << MetricsDocument();
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  EXPECT_EQ(content.str(), MetricsDocument()) << "run this test with MSPROBE_UPDATE_DOCS=1";
}

TEST(Metrics, AddsAndSets) {
  Metrics metrics;
  metrics.Add(Metric::kGaps, 3, {"dropped"});
  metrics.Add(Metric::kGaps, 2, {"dropped"});
  metrics.Add(Metric::kGaps, 1, {"fault"});
  metrics.Set(Metric::kOpenSessions, 7);
  EXPECT_EQ(metrics.Value(Metric::kGaps, {"dropped"}), 5);
  EXPECT_EQ(metrics.Value(Metric::kGaps, {"fault"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kOpenSessions), 7);
}

// A writer with many runs must not keep a later job out.
TEST(Metrics, ALaterRunTakesThePlaceOfTheOneThatChangedLongestAgo) {
  Metrics metrics;
  const auto run = [](int i) { return "run" + std::to_string(i); };
  for (Metric metric : {Metric::kNanTensors, Metric::kLastStep}) {
    for (int i = 0; i < 1000; ++i) metrics.Add(metric, 1, {run(i), "rank0"});
    metrics.Add(metric, 1, {run(0), "rank0"});
    metrics.Add(metric, 7, {"later", "rank0"});
    EXPECT_EQ(metrics.Value(metric, {"later", "rank0"}), 7);
    EXPECT_EQ(metrics.Value(metric, {run(0), "rank0"}), 2) << "changed a moment ago";
    EXPECT_EQ(metrics.Value(metric, {run(1), "rank0"}), 0);
    EXPECT_EQ(metrics.Value(metric, {run(999), "rank0"}), 1);
  }
  const std::string text = metrics.Text();
  EXPECT_NE(text.find("msprobe_nan_tensors_total{rank=\"rank0\",run=\"later\"} 7"), std::string::npos);
  EXPECT_EQ(text.find("run=\"run1\""), std::string::npos);
}

TEST(Metrics, ADeletedRunLeaves) {
  Metrics metrics;
  for (const char* run : {"one", "other"}) {
    metrics.Add(Metric::kNanTensors, 1, {run, "rank0"});
    metrics.Add(Metric::kOverflowProducers, 1, {run, "rank0", "none", "nan"});
    metrics.Set(Metric::kWatched, 3, {run, "rank0", "loss"});
  }
  metrics.ForgetRun("one");
  EXPECT_EQ(metrics.Text().find("run=\"one\""), std::string::npos);
  EXPECT_EQ(metrics.Value(Metric::kNanTensors, {"other", "rank0"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kWatched, {"other", "rank0", "loss"}), 3);
  metrics.Add(Metric::kNanTensors, 1, {"one", "rank0"});
  EXPECT_EQ(metrics.Value(Metric::kNanTensors, {"one", "rank0"}), 1) << "a new run of that name begins anew";
}

TEST(Metrics, HistogramsCountMeasurements) {
  Metrics metrics;
  for (double seconds : {0.0005, 0.5, 500.0}) metrics.Observe(Metric::kAckSeconds, seconds);
  EXPECT_EQ(metrics.Value(Metric::kAckSeconds), 3);
}

TEST(MetricCatalogue, NoLabelNamesATensorAStepOrARequest) {
  const std::set<std::string_view> allowed = {"run",    "rank",   "module_group", "kind",    "origin",  "watch",
                                              "result", "reason", "state",        "version", "code",    "family",
                                              "port",   "file",   "rule",         "what",    "verdict", "receiver"};
  for (const MetricRow& row : MetricCatalogue()) {
    std::string_view rest = row.labels;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      EXPECT_TRUE(allowed.contains(rest.substr(0, comma))) << row.name << " has " << rest.substr(0, comma);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
}

}  // namespace
}  // namespace msprobe::server
