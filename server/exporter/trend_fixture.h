#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

namespace msprobe::server {

// A directory for trend databases, and their rows as texts. For tests.
class TrendFixture : public testing::Test {
 protected:
  TrendFixture() {
    std::string pattern = testing::TempDir() + "/trend-XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    path_ = directory_ + "/a.trend.db";
  }
  ~TrendFixture() override { std::filesystem::remove_all(directory_); }

  // Cells between '|'.
  std::vector<std::string> Rows(const std::string& sql) const {
    sqlite3* connection = nullptr;
    EXPECT_EQ(sqlite3_open_v2(path_.c_str(), &connection, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
    std::vector<std::string> rows;
    const auto take = [](void* into, int size, char** cells, char**) {
      std::string row;
      for (int i = 0; i < size; ++i) row += std::string(i == 0 ? "" : "|") + (cells[i] == nullptr ? "-" : cells[i]);
      static_cast<std::vector<std::string>*>(into)->push_back(row);
      return 0;
    };
    EXPECT_EQ(sqlite3_exec(connection, sql.c_str(), take, &rows, nullptr), SQLITE_OK) << sqlite3_errmsg(connection);
    sqlite3_close(connection);
    return rows;
  }

  // rank|step|metric|target|call|norm|max|min|mean
  std::vector<std::string> Values() const {
    return Rows(
        "SELECT rank, step, metric_name, target_name, micro_step, norm, max, min, mean FROM trend_data "
        "JOIN monitoring_targets USING (target_id) JOIN monitoring_metrics USING (metric_id) "
        "ORDER BY step, rank, target_id, metric_id");
  }

  std::string directory_;
  std::string path_;
};

}  // namespace msprobe::server
