#include "server/analysis/series/step_columns.h"

#include <gtest/gtest.h>

namespace msprobe::server {
namespace {

TEST(StepColumns, StepsAreSpreadEvenly) {
  const StepColumns columns({9, 2, 2, 4, 7, 11}, 3);
  ASSERT_EQ(columns.size(), 3u);
  EXPECT_EQ(columns.first(1), 7u);
  EXPECT_EQ(columns.last(1), 9u);
  EXPECT_EQ(columns.ColumnOf(11), 2u);
  EXPECT_EQ(StepColumns({}, 5).size(), 0u);
}

}  // namespace
}  // namespace msprobe::server
