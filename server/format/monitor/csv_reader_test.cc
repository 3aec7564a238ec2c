#include "server/format/monitor/csv_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

namespace msprobe::server {
namespace {

using testing::ElementsAre;

absl::StatusOr<std::vector<std::vector<std::string>>> RowsOf(const std::string& text) {
  const std::string path = testing::TempDir() + "/rows.csv";
  std::ofstream(path, std::ios::binary) << text;
  auto reader = CsvReader::Open(path);
  if (!reader.ok()) return reader.status();
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string_view> cells;
  for (;;) {
    auto any = reader->Next(cells);
    if (!any.ok()) return any.status();
    if (!*any) return rows;
    rows.emplace_back(cells.begin(), cells.end());
  }
}

TEST(CsvReaderTest, ReadsCellsAsTheyWereWritten) {
  EXPECT_THAT(*RowsOf("a,b,\n\n1,\"[2, 3]\",\"say \"\"no\"\"\"\r\n\"two\nlines\",,x"),
              ElementsAre(ElementsAre("a", "b", ""), ElementsAre("1", "[2, 3]", "say \"no\""),
                          ElementsAre("two\nlines", "", "x")));
  EXPECT_TRUE(RowsOf("")->empty());
}

TEST(CsvReaderTest, SaysWhereAQuoteHasNoEnd) {
  EXPECT_THAT(std::string(RowsOf("a\n\"b,c\n1\n").status().message()),
              testing::EndsWith("rows.csv: line 2: a quote has no end"));
}

}  // namespace
}  // namespace msprobe::server
