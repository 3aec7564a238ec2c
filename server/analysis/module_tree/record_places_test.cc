#include "server/analysis/module_tree/record_places.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace msprobe::server {
namespace {

StepTable Table(const std::vector<std::pair<std::string, std::string>>& names_and_parents) {
  StepTable table;
  for (const auto& [name, parent] : names_and_parents) {
    Entry& entry = table.entries.emplace_back();
    entry.name = table.arena.Add(name);
    entry.parent = table.arena.Add(parent);
  }
  return table;
}

RecordPlace PlaceOf(const std::string& name, const std::string& parent = "") {
  return PlacesOfRecords(Table({{name, parent}}))[0];
}

TEST(RecordPlaces, AModuleStandsInTheModulesAroundIt) {
  const RecordPlace place = PlaceOf("Module.model.layers.0.mlp.MLP.forward.0");
  EXPECT_EQ(place.scope, "Module.model.layers.0.mlp");
  EXPECT_EQ(place.path(), "model.layers.0.mlp");
  EXPECT_EQ(place.type, "MLP");
  EXPECT_EQ(place.state, "forward");
  EXPECT_EQ(PlaceOf("Module.model.Model.forward.0").scope, "Module.model");
  EXPECT_EQ(PlaceOf("Module.Model.forward.0").scope, "TopLayer.Module");
}

TEST(RecordPlaces, AnApiStandsInItsParent) {
  const RecordPlace place = PlaceOf("Functional.linear.3.forward", "Module.model.fc.Linear.forward.0");
  EXPECT_EQ(place.scope, "Module.model.fc.linear");
  EXPECT_EQ(place.type, "linear");
  EXPECT_EQ(PlaceOf("Functional.linear.3.forward").scope, "TopLayer.linear");
}

TEST(RecordPlaces, AnApiIsNamedByTheFrameworksFunctionThatCalledIt) {
  StepTable table = Table({{"Tensor.add.0.forward", ""}});
  table.entries[0].stack = 0;
  table.stacks.push_back({"File /x/site-packages/torch/nn/modules/linear.py, line 1, in forward, \n return",
                          "File /home/user/train.py, line 9, in main, \n step()"});
  EXPECT_EQ(PlacesOfRecords(table)[0].scope, "TopLayer.forward.add");
}

TEST(RecordPlaces, AParametersGradientStandsAtItsModule) {
  const RecordPlace place = PlaceOf("Module.model.fc.Linear.parameters_grad.0");
  EXPECT_EQ(place.scope, "Module.model.fc.fc");
  EXPECT_EQ(place.type, "Linear");
  EXPECT_EQ(place.state, "parameters_grad");
}

TEST(RecordPlaces, ABackwardCallStandsWhereItsForwardCallDoes) {
  const auto places = PlacesOfRecords(Table(
      {{"Functional.linear.3.forward", "Module.model.fc.Linear.forward.0"}, {"Functional.linear.3.backward", ""}}));
  EXPECT_EQ(places[1].scope, places[0].scope);
  EXPECT_EQ(places[1].state, "backward");
}

}  // namespace
}  // namespace msprobe::server
