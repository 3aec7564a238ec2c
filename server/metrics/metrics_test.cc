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

TEST(Metrics, LabelsAreBounded) {
  Metrics metrics;
  for (int i = 0; i < 1500; ++i) metrics.Add(Metric::kNanTensors, 1, {"run" + std::to_string(i), "rank0"});
  EXPECT_EQ(metrics.Value(Metric::kNanTensors, {"run999", "rank0"}), 1);
  EXPECT_EQ(metrics.Value(Metric::kNanTensors, {"run1400", "rank0"}), 0);
  EXPECT_EQ(metrics.Value(Metric::kNanTensors, {"other", "other"}), 500);
}

TEST(Metrics, GaugesBeyondTheBoundAreLeftOutAndRemovedOnesMakeRoom) {
  Metrics metrics;
  for (int run = 0; run < 1001; ++run) metrics.Set(Metric::kLastStep, 7, {"run" + std::to_string(run), "rank0"});
  EXPECT_EQ(metrics.Value(Metric::kLastStep, {"run999", "rank0"}), 7);
  EXPECT_EQ(metrics.Value(Metric::kLastStep, {"run1000", "rank0"}), 0);
  metrics.Remove(Metric::kLastStep, {"run3", "rank0"});
  EXPECT_EQ(metrics.Value(Metric::kLastStep, {"run3", "rank0"}), 0);
  metrics.Set(Metric::kLastStep, 9, {"run1000", "rank0"});
  EXPECT_EQ(metrics.Value(Metric::kLastStep, {"run1000", "rank0"}), 9);
}

TEST(Metrics, HistogramsCountMeasurements) {
  Metrics metrics;
  for (double seconds : {0.0005, 0.5, 500.0}) metrics.Observe(Metric::kAckSeconds, seconds);
  EXPECT_EQ(metrics.Value(Metric::kAckSeconds), 3);
}

TEST(MetricCatalogue, NoLabelNamesATensorAStepOrARequest) {
  const std::set<std::string_view> allowed = {"run",    "rank",   "module_group", "kind",    "origin", "watch",
                                              "result", "reason", "state",        "version", "code",   "family"};
  for (const MetricRow& row : MetricCatalogue()) {
    std::string_view rest = row.labels;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      EXPECT_TRUE(allowed.contains(rest.substr(0, comma))) << row.name << " has " << rest.substr(0, comma);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
}

TEST(Metrics, AddressThatCannotBeBoundIsAnError) {
  Metrics metrics;
  absl::Status status = metrics.Serve("256.0.0.1:1");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("256.0.0.1:1"), std::string::npos);
}

}  // namespace
}  // namespace msprobe::server
