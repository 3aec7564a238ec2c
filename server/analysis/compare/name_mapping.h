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
// those of mindstudio-probe 26.2.0. Either rows, or layers, or cells, APIs and both of them are given.
//
// Cells and APIs are those of MindSpore, whichever side it is. Where the other side is of another framework, known
// names reach further than that tool's: docs/analysis.md, "MindSpore against PyTorch".
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
  // Whether partners are named one by one. Then they are compared whatever their dtypes are.
  bool names_partners() const { return !rows.empty() || !layers.empty(); }
};

// The mapping that counts: the one given; where there is none and the frameworks differ, known cells and APIs.
const NameMapping& MappingFor(const NameMapping& given, const StepTable& target, const StepTable& golden);

// What a mapping makes of the names of both sides: partners are called the same. An empty one changes nothing.
struct MappedNames {
  StepNames target;
  StepNames golden;
};
MappedNames NamesByMapping(const StepTable& target, const StepTable& golden, const NameMapping& mapping);

// Pairs rows by MappingFor. `fuzzy`: without the number of the call, unless the mapping names partners.
RowMatch MatchRows(const StepTable& target, const StepTable& golden, const NameMapping& given, bool fuzzy);

// By entry of the target: the entry of the golden side that NamesByMapping calls the same; -1: there is none.
std::vector<int32_t> EntriesByMapping(const StepTable& target, const StepTable& golden, const NameMapping& mapping);

// Entries and their partners, which stand at corresponding places in the two trees of modules. Needs Entry.parent and
// stacks of both sides.
struct LayerMatch {
  std::vector<int32_t> golden_of;  // by entry of the target: entry of the golden side; -1: it has no partner
  bool renamed = false;            // whether any module is called otherwise on the golden side
};
LayerMatch EntriesOfLayers(const StepTable& target, const StepTable& golden,
                           const std::vector<std::pair<std::string, NameMapping::Names>>& layers);

// PyTorch's name of one of MindSpore's APIs ("Functional.abs": "Torch.abs"); empty where it is called the same or is
// not known. From mindstudio-probe's table.
std::string PyTorchName(std::string_view mindspore_api);

// PyTorch's name of a parameter of MindSpore's layers ("gamma": "weight"); empty where it is called the same.
std::string_view PyTorchParameter(std::string_view mindspore_parameter);

}  // namespace msprobe::server
