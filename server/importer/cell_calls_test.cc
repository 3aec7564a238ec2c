#include "server/importer/cell_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace msprobe::server {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(CellTensorFile, HasTheTensorsNameItsTypeAndItsId) {
  const std::optional<CellTensorFile> file =
      CellTensorFile::Parse("Cell.blocks.0.up_in.Linear.backward.output.12_in_float32_165.npy");
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(file->name.cell, "Cell.blocks.0.up_in.Linear");
  EXPECT_TRUE(file->name.is_backward && file->name.is_output);
  EXPECT_EQ(file->name.index, 12u);
  EXPECT_EQ(file->dtype, "float32");
  EXPECT_EQ(file->id, 165u);
}

TEST(CellTensorFile, OthersHaveNone) {
  for (const char* file : {"Cell.fc.Dense.forward.0.input.0.npy", "Cell.fc.Dense.forward.0.parameters.my_weight_0.npy",
                           "Mint.abs.0.forward.input.0_float32_1.npy", "Cell.fc.Dense.forward.input.0_float32_1.pt",
                           "Cell.fc.Dense.forward.input.0_1.npy", "Cell.forward.input.0_float32_x.npy", ""}) {
    EXPECT_FALSE(CellTensorFile::Parse(file).has_value()) << file;
  }
}

std::vector<std::pair<std::string, std::string>> Parents(const std::vector<const char*>& names) {
  CellCalls calls;
  for (size_t i = 0; i < names.size(); ++i) calls.Add(*CellTensorName::Parse(names[i]), i, {});
  std::vector<std::pair<std::string, std::string>> parents;
  for (const DumpedCall& call : calls.Arranged()) parents.emplace_back(call.name, call.parent);
  return parents;
}

TEST(CellCalls, ACallIsInsideTheEnclosingCellThatEndsNext) {
  EXPECT_THAT(Parents({"Cell.net.Net.forward.input.0", "Cell.net.layers.0.fc.Dense.forward.output.0",
                       "Cell.net.Net.forward.output.0", "Cell.net.layers.0.fc.Dense.forward.output.0",
                       "Cell.net.Net.forward.output.0"}),
              ElementsAre(Pair("Cell.net.layers.0.fc.Dense.forward.0", "Cell.net.Net.forward.0"),
                          Pair("Cell.net.Net.forward.0", ""),
                          Pair("Cell.net.layers.0.fc.Dense.forward.1", "Cell.net.Net.forward.1"),
                          Pair("Cell.net.Net.forward.1", "")));
}

TEST(CellCalls, AnEnclosingCellThatEndedBeforeIsStillTheParent) {
  EXPECT_THAT(Parents({"Cell.net.Net.backward.input.0", "Cell.net.fc.Dense.backward.output.0"}),
              ElementsAre(Pair("Cell.net.Net.backward.0", ""),
                          Pair("Cell.net.fc.Dense.backward.0", "Cell.net.Net.backward.0")));
}

}  // namespace
}  // namespace msprobe::server
