#include "server/metrics/metrics.h"

#include <gtest/gtest.h>

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

TEST(Metrics, AddressThatCannotBeBoundIsAnError) {
  Metrics metrics;
  absl::Status status = metrics.Serve("256.0.0.1:1");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("256.0.0.1:1"), std::string::npos);
}

}  // namespace
}  // namespace msprobe::server
