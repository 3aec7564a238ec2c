#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/analysis/compare/row_match.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// Names of the target and their counterparts on the golden side, as in mindstudio-probe's mapping files. The rules are
// those of mindstudio-probe 26.2.0. One of them is used: apis before cells, cells before rows.
struct NameMapping {
  using Names = std::vector<std::pair<std::string, std::string>>;  // target's, golden's

  // Arguments and results of one API that correspond; the target's others are left without a partner.
  struct Api {
    std::string target;  // "Functional.conv2d"
    std::string golden;
    Names inputs;
    Names outputs;
    Names parameters;
    Names parameters_grad;
  };

  Names rows;
  bool cells = false;
  Names cell_names;
  bool apis = false;
  std::vector<Api> api_names;
  // By class of a module; inside one, source to destination.
  std::vector<std::pair<std::string, Names>> layers;

  bool empty() const { return rows.empty() && !cells && !apis && layers.empty(); }
  // Whether rows are compared whatever their dtypes are.
  bool ignores_dtypes() const { return !rows.empty() || !layers.empty(); }
};

RowMatch MatchByMapping(const StepTable& target, const StepTable& golden, const NameMapping& mapping);

// Entries and their partners, which stand at corresponding places in the two trees of modules. Needs Entry.parent and
// stacks of both sides.
struct LayerMatch {
  std::vector<int32_t> golden_of;  // by entry of the target: entry of the golden side; -1: it has no partner
  bool renamed = false;            // whether any module is called otherwise on the golden side
};
LayerMatch EntriesOfLayers(const StepTable& target, const StepTable& golden,
                           const std::vector<std::pair<std::string, NameMapping::Names>>& layers);

// Names of rows and their partners, by EntriesOfLayers. The partner of a row that has none is "N/A".
NameMapping::Names RowsOfLayers(const StepTable& target, const StepTable& golden,
                                const std::vector<std::pair<std::string, NameMapping::Names>>& layers);

// PyTorch's name of one of MindSpore's APIs ("Functional.abs": "Torch.abs"); empty where it is called the same or is
// not known. From mindstudio-probe's table.
std::string PyTorchName(std::string_view mindspore_api);

}  // namespace msprobe::server
