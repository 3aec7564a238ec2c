#include "server/analysis/compat/mindstudio_table.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "server/analysis/compare/content_comparison.h"
#include "server/analysis/compare/name_mapping.h"
#include "server/analysis/table/memory_table.h"
#include "server/analysis/table/table_source.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

std::string Reference() {
  const char* named = std::getenv("MSPROBE_REFERENCE");
  return std::string(named != nullptr ? named : MSPROBE_SOURCE_DIR "/../shared/reference") + "/compare";
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::unique_ptr<TableSource> Step(const std::string& name) {
  const std::string directory = Reference() + "/" + name + "/step0/proc1";
  DumpFiles files{directory + "/dump.json", directory + "/stack.json", "", directory + "/dump_tensor_data"};
  auto step = ReadDumpTable(files, {});
  EXPECT_TRUE(step.ok()) << step.status();
  return *std::move(step);
}

std::string Csv(const TableSource& target, const TableSource& golden, const RowMatch& match) {
  MindstudioTable table;
  table.target = &target.table();
  table.golden = &golden.table();
  table.match = &match;
  table.mode = target.table().mode;
  std::vector<ContentResult> contents;
  if (table.mode == StepTable::Mode::kTensor) {
    contents = *CompareContents(match, target, golden, {});
    table.contents = &contents;
  }
  std::string csv;
  auto counts = WriteMindstudioCsv(table, [&](std::string& chunk) {
    csv += chunk;
    return absl::OkStatus();
  });
  EXPECT_TRUE(counts.ok()) << counts.status();
  return csv;
}

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') quoted = !quoted;
    if (c == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += c;
    }
  }
  return cells;
}

// The last digits of EucDist depend on the order in which a BLAS adds.
void ExpectSameCell(const std::string& column, const std::string& ours, const std::string& theirs) {
  if (column != "EucDist" || ours == theirs) {
    EXPECT_EQ(ours, theirs) << column;
  } else {
    const double expected = std::atof(theirs.c_str());
    EXPECT_NEAR(std::atof(ours.c_str()), expected, 1e-13 * expected);
  }
}

void ExpectSameLines(const std::string& ours, const std::string& theirs) {
  std::istringstream a(ours);
  std::istringstream b(theirs);
  std::string x;
  std::string y;
  std::vector<std::string> columns;
  for (int line = 1; std::getline(b, y); ++line) {
    SCOPED_TRACE(line);
    ASSERT_TRUE(std::getline(a, x)) << "is missing: " << y;
    const std::vector<std::string> left = Cells(x);
    const std::vector<std::string> right = Cells(y);
    if (line == 1) columns = right;
    ASSERT_EQ(left.size(), right.size()) << x;
    for (size_t i = 0; i < left.size(); ++i) ExpectSameCell(columns[i], left[i], right[i]);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_FALSE(std::getline(a, x)) << "one line too many: " << x;
}

class MindstudioTableTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(Reference())) GTEST_SKIP() << Reference() << " is not there";
  }
};

TEST_P(MindstudioTableTest, IsTheRecordedOne) {
  const std::string mode = GetParam();
  auto target = Step(mode + "_perturb");
  auto golden = Step(mode + "_golden");
  ExpectSameLines(Csv(*target, *golden, MatchExactly(target->table(), golden->table())),
                  ReadFile(Reference() + "/result_" + mode + ".csv"));
}

INSTANTIATE_TEST_SUITE_P(Modes, MindstudioTableTest, testing::Values("statistics", "md5", "tensor"));

// mindstudio-probe loses every golden row with -fm on these dumps; every name does have its partner.
TEST_F(MindstudioTableTest, FuzzilyMatchedRowsHaveTheirPartners) {
  auto target = Step("statistics_perturb");
  auto golden = Step("statistics_golden");
  ExpectSameLines(Csv(*target, *golden, MatchFuzzily(target->table(), golden->table())),
                  ReadFile(Reference() + "/result_statistics.csv"));
}

TEST(MindstudioTableAcrossFrameworksTest, NeitherGradMarksNorSpellingsOfDtypesCondemnARow) {
  const auto call = [](std::string_view dtype, std::string_view index, std::string_view more) {
    const auto leaf = [&](std::string_view of) {
      return Cat(R"({"type":"t.Tensor","dtype":")", of, R"(","shape":[1],"Max":1.0,"Min":0.0,"Mean":0.5,"Norm":1.0)",
                 more, "}");
    };
    return Cat(R"({"input_args":[)", leaf(index), R"(],"output":[)", leaf(dtype), "]}");
  };
  const MemoryTable golden(
      {{"Module.a.Linear.forward.0", call("torch.float32", "torch.int64", R"(,"requires_grad":true)")}});
  const auto results = [&](std::string_view dtype) {
    MemoryTable target({{"Cell.a.Dense.forward.0", call(dtype, "Int32", "")}});
    target.mutable_table().framework = "mindspore";
    const RowMatch match = MatchRows(target.table(), golden.table(), {}, false);
    MindstudioTable table;
    table.target = &target.table();
    table.golden = &golden.table();
    table.match = &match;
    table.across_frameworks = true;
    std::string csv;
    auto counts = WriteMindstudioCsv(table, [&](std::string& chunk) {
      csv += chunk;
      return absl::OkStatus();
    });
    EXPECT_TRUE(counts.ok() && counts->rows == 2 && counts->target_only == 0) << csv;
    EXPECT_NE(csv.find(",N/A,True,"), std::string::npos) << "the marks are shown: " << csv;
    return counts->errors;
  };
  EXPECT_EQ(results("Float32"), 0u);
  EXPECT_EQ(results("Float16"), 1u);
}

}  // namespace
}  // namespace msprobe::server
