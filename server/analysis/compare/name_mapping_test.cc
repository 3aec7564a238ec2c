#include "server/analysis/compare/name_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/analysis/table/dump_reader.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Pair;

// Names of records; each has one input and one output, gradients one weight. Modules stand in the module given.
struct Record {
  std::string name;
  std::string parent;
};

StepTable Table(const std::vector<Record>& records) {
  const std::string leaf =
      R"({"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"Max":1.0,"Min":0.0,"Mean":0.5,"Norm":1.0})";
  StepTable table;
  DumpReader builder(&table);
  for (const Record& record : records) {
    const bool gradient = record.name.find("parameters_grad") != std::string::npos;
    const std::string json =
        gradient ? Cat(R"({"weight":[)", leaf, "]}") : Cat(R"({"input_args":[)", leaf, R"(],"output":[)", leaf, "]}");
    EXPECT_TRUE(builder.AddEntry(record.name, json, 0).ok()) << record.name;
    table.entries.back().parent = table.arena.Add(record.parent);
  }
  return table;
}

// "target row = golden row", in the target's order.
std::vector<std::string> Partners(const std::vector<Record>& target, const std::vector<Record>& golden,
                                  const NameMapping& mapping) {
  const StepTable ours = Table(target);
  const StepTable theirs = Table(golden);
  std::vector<std::string> partners;
  for (const auto& [a, b] : MatchRows(ours, theirs, mapping, false).pairs) {
    partners.push_back(std::string(ours.rows[static_cast<size_t>(a)].name) + " = " +
                       (b == kNoRow ? "-" : std::string(theirs.rows[static_cast<size_t>(b)].name)));
  }
  return partners;
}

TEST(NameMappingTest, RowsAreRenamedAndTheOthersKeepTheirNames) {
  NameMapping mapping;
  mapping.rows = {{"Torch.a.0.forward.output.0", "Torch.b.0.forward.input.0"}};
  EXPECT_THAT(Partners({{"Torch.a.0.forward", ""}}, {{"Torch.a.0.forward", ""}, {"Torch.b.0.forward", ""}}, mapping),
              ElementsAre("Torch.a.0.forward.input.0 = Torch.a.0.forward.input.0",
                          "Torch.a.0.forward.output.0 = Torch.b.0.forward.input.0"));
  EXPECT_TRUE(mapping.names_partners());
}

TEST(NameMappingTest, CellsAreModules) {
  NameMapping mapping;
  mapping.cells = true;
  EXPECT_THAT(Partners({{"Cell.fc1.Dense.forward.0", ""}, {"Functional.abs.0.forward", ""}},
                       {{"Module.fc1.Dense.forward.0", ""}, {"Functional.abs.0.forward", ""}}, mapping),
              Contains("Cell.fc1.Dense.forward.0.input.0 = Module.fc1.Dense.forward.0.input.0"));
  EXPECT_FALSE(mapping.names_partners());
}

TEST(NameMappingTest, AWholeCellWinsOverItsParts) {
  NameMapping mapping;
  mapping.cells = true;
  mapping.cell_names = {{"fc1.Dense", "first.Linear"}, {"Dense", "Never"}};
  const std::vector<std::string> partners =
      Partners({{"Cell.fc1.Dense.forward.0", ""}, {"Cell.fc2.Dense.backward.0", ""}},
               {{"Module.first.Linear.forward.0", ""}, {"Module.fc2.Never.backward.0", ""}}, mapping);
  EXPECT_THAT(partners, Contains("Cell.fc1.Dense.forward.0.output.0 = Module.first.Linear.forward.0.output.0"));
  EXPECT_THAT(partners, Contains("Cell.fc2.Dense.backward.0.output.0 = Module.fc2.Never.backward.0.output.0"));
}

TEST(NameMappingTest, GradientsOfParametersFollowTheirCell) {
  NameMapping mapping;
  mapping.cells = true;
  mapping.cell_names = {{"fc1.Dense", "fc1.Linear"}};
  EXPECT_THAT(Partners({{"Cell.fc1.Dense.parameters_grad", ""}}, {{"Module.fc1.Linear.parameters_grad", ""}}, mapping),
              ElementsAre("Cell.fc1.Dense.parameters_grad.weight = Module.fc1.Linear.parameters_grad.weight"));
}

TEST(NameMappingTest, KnownApisOfMindSporeHavePyTorchsNames) {
  NameMapping mapping;
  mapping.apis = true;
  EXPECT_THAT(
      Partners({{"Functional.abs.0.forward", ""}, {"Mint.add.0.forward", ""}, {"MintFunctional.relu.0.forward", ""}},
               {{"Torch.abs.0.forward", ""}, {"Torch.add.0.forward", ""}, {"Functional.relu.0.forward", ""}}, mapping),
      ElementsAre("Functional.abs.0.forward.input.0 = Torch.abs.0.forward.input.0",
                  "Functional.abs.0.forward.output.0 = Torch.abs.0.forward.output.0",
                  "Mint.add.0.forward.input.0 = Torch.add.0.forward.input.0",
                  "Mint.add.0.forward.output.0 = Torch.add.0.forward.output.0",
                  "MintFunctional.relu.0.forward.input.0 = Functional.relu.0.forward.input.0",
                  "MintFunctional.relu.0.forward.output.0 = Functional.relu.0.forward.output.0"));
}

TEST(NameMappingTest, OfANamedApiOnlyWhatIsNamedHasAPartner) {
  NameMapping mapping;
  mapping.apis = true;
  mapping.api_names = {{"Functional.conv", "Functional.conv2d", {{"0", "0"}}, {}, {}, {}}};
  EXPECT_THAT(Partners({{"Functional.conv.0.forward", ""}}, {{"Functional.conv2d.0.forward", ""}}, mapping),
              ElementsAre("Functional.conv.0.forward.input.0 = Functional.conv2d.0.forward.input.0",
                          "Functional.conv.0.forward.output.0 = -"));
}

TEST(NameMappingTest, LayersAreMatchedByTheirPlacesLongestSourceFirst) {
  NameMapping mapping;
  mapping.layers = {{"TopLayer", {{"net", "wrong"}, {"net.block", "deep.inner"}}}};
  EXPECT_TRUE(mapping.names_partners());
  EXPECT_THAT(
      Partners({{"Cell.net.block.Block.forward.0", ""}, {"Functional.add.0.forward", "Cell.net.block.Block.forward.0"}},
               {{"Module.deep.inner.Other.forward.0", ""},
                {"Functional.add.0.forward", "Module.deep.inner.Other.forward.0"}},
               mapping),
      ElementsAre("Cell.net.block.Block.forward.0.input.0 = Module.deep.inner.Other.forward.0.input.0",
                  "Cell.net.block.Block.forward.0.output.0 = Module.deep.inner.Other.forward.0.output.0",
                  "Functional.add.0.forward.input.0 = Functional.add.0.forward.input.0",
                  "Functional.add.0.forward.output.0 = Functional.add.0.forward.output.0"));
}

TEST(NameMappingTest, ALayerThatTheGoldenSideLacksHasNoPartner) {
  NameMapping mapping;
  mapping.layers = {{"TopLayer", {}}};
  EXPECT_THAT(Partners({{"Module.a.A.forward.0", ""}}, {{"Module.b.A.forward.0", ""}}, mapping),
              ElementsAre("Module.a.A.forward.0.input.0 = -", "Module.a.A.forward.0.output.0 = -"));
}

// Of the step of two frameworks, whichever side is MindSpore's: "its row = the other's row".
class AcrossFrameworksTest : public testing::TestWithParam<bool> {
 protected:
  std::vector<std::string> PartnersOf(const std::vector<Record>& mindspore, const std::vector<Record>& pytorch) {
    StepTable ours = Table(mindspore);
    ours.framework = "mindspore";
    const StepTable theirs = Table(pytorch);
    const bool swapped = GetParam();
    const RowMatch match = swapped ? MatchRows(theirs, ours, {}, false) : MatchRows(ours, theirs, {}, false);
    std::vector<std::string> partners;
    for (auto [a, b] : match.pairs) {
      if (swapped) std::swap(a, b);
      if (a == kNoRow || b == kNoRow) continue;
      partners.push_back(Cat(ours.rows[static_cast<size_t>(a)].name, " = ", theirs.rows[static_cast<size_t>(b)].name));
    }
    return partners;
  }
};
INSTANTIATE_TEST_SUITE_P(EitherSide, AcrossFrameworksTest, testing::Bool());

TEST_P(AcrossFrameworksTest, ModulesHaveTheirPartnersWhateverTheirClass) {
  EXPECT_THAT(PartnersOf({{"Cell.net.fc1.Dense.forward.0", ""}, {"Cell.net.act.ReLU.forward.1", ""}},
                         {{"Module.net.fc1.Linear.forward.0", ""}, {"Module.net.act.ReLU.forward.1", ""}}),
              ElementsAre("Cell.net.fc1.Dense.forward.0.input.0 = Module.net.fc1.Linear.forward.0.input.0",
                          "Cell.net.fc1.Dense.forward.0.output.0 = Module.net.fc1.Linear.forward.0.output.0",
                          "Cell.net.act.ReLU.forward.1.input.0 = Module.net.act.ReLU.forward.1.input.0",
                          "Cell.net.act.ReLU.forward.1.output.0 = Module.net.act.ReLU.forward.1.output.0"));
}

TEST_P(AcrossFrameworksTest, AnApiHasItsPartnerAsFunctionOrMethod) {
  EXPECT_THAT(
      PartnersOf({{"Mint.sum.0.forward", ""}, {"Functional.cat.0.forward", ""}, {"Primitive.a.MatMul.0.forward", ""}},
                 {{"Tensor.sum.0.forward", ""}, {"Torch.cat.0.forward", ""}, {"Torch.matmul.0.forward", ""}}),
      ElementsAre("Mint.sum.0.forward.input.0 = Tensor.sum.0.forward.input.0",
                  "Mint.sum.0.forward.output.0 = Tensor.sum.0.forward.output.0",
                  "Functional.cat.0.forward.input.0 = Torch.cat.0.forward.input.0",
                  "Functional.cat.0.forward.output.0 = Torch.cat.0.forward.output.0"));
}

TEST_P(AcrossFrameworksTest, AMethodThatIsThereItselfKeepsItsPartner) {
  EXPECT_THAT(PartnersOf({{"Mint.sum.0.forward", ""}, {"Tensor.sum.0.forward", ""}}, {{"Tensor.sum.0.forward", ""}}),
              ElementsAre("Tensor.sum.0.forward.input.0 = Tensor.sum.0.forward.input.0",
                          "Tensor.sum.0.forward.output.0 = Tensor.sum.0.forward.output.0"));
}

TEST_P(AcrossFrameworksTest, BackwardCallsArePairedInTheirOrder) {
  EXPECT_THAT(PartnersOf({{"Mint.add.1.backward", ""}, {"Mint.add.0.backward", ""}},
                         {{"Torch.add.1.backward", ""}, {"Torch.add.0.backward", ""}}),
              Contains("Mint.add.1.backward.output.0 = Torch.add.1.backward.output.0"));
}

TEST(MindSporesParametersTest, HavePyTorchsNames) {
  EXPECT_EQ(PyTorchParameter("gamma"), "weight");
  EXPECT_EQ(PyTorchParameter("beta"), "bias");
  EXPECT_EQ(PyTorchParameter("weight"), "");
}

TEST(PyTorchNameTest, NamesOfBothFrameworks) {
  EXPECT_EQ(PyTorchName("Functional.abs"), "Torch.abs");
  EXPECT_EQ(PyTorchName("Functional.zeros_like"), "Torch.zeros_like");
  EXPECT_EQ(PyTorchName("Functional.dense"), "Functional.linear");
  EXPECT_EQ(PyTorchName("Tensor.equal"), "Tensor.eq");
  EXPECT_EQ(PyTorchName("Functional.relu"), "");
  EXPECT_EQ(PyTorchName("Tensor.abs"), "");
  EXPECT_EQ(PyTorchName(""), "");
}

}  // namespace
}  // namespace msprobe::server
