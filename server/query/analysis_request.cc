#include "server/query/analysis_request.h"

#include <fnmatch.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

absl::Status AddTolerances(const google::protobuf::RepeatedPtrField<v1::ToleranceSetting>& settings,
                           Tolerances& tolerances) {
  for (const v1::ToleranceSetting& setting : settings) {
    for (const auto& [has, value, name] : {std::tuple(setting.has_relative(), setting.relative(), "relative"),
                                           std::tuple(setting.has_absolute(), setting.absolute(), "absolute")}) {
      if (has && !(value >= 0)) {
        return absl::InvalidArgumentError(Cat(name, " tolerance ", value, " is not allowed: it must be 0 or more"));
      }
    }
    if (!setting.dtype().empty() && DTypeOfName(setting.dtype()) == v1::DTYPE_OTHER) {
      return absl::InvalidArgumentError(Cat("tolerance for dtype \"", setting.dtype(),
                                            "\": there is no such dtype; write float32, bfloat16, int64, ..."));
    }
    const auto given = [](bool has, double value) { return has ? std::optional<double>(value) : std::nullopt; };
    if (!setting.name_glob().empty()) {
      tolerances.AddRule(setting.name_glob(), setting.dtype(), given(setting.has_relative(), setting.relative()),
                         given(setting.has_absolute(), setting.absolute()));
      continue;
    }
    if (setting.dtype().empty()) {
      tolerances.Override(given(setting.has_relative(), setting.relative()),
                          given(setting.has_absolute(), setting.absolute()));
      continue;
    }
    Tolerance tolerance = tolerances.Of(setting.dtype(), setting.dtype());
    if (setting.has_relative()) tolerance.relative = setting.relative();
    if (setting.has_absolute()) tolerance.absolute = setting.absolute();
    tolerances.Set(setting.dtype(), tolerance);
  }
  return absl::OkStatus();
}

absl::StatusOr<NameMapping> MappingOf(const v1::NameMapping& message) {
  const auto names = [](const auto& given) {
    NameMapping::Names made;
    for (const v1::NameMapping::Name& name : given) made.emplace_back(name.target(), name.golden());
    return made;
  };
  NameMapping mapping;
  mapping.rows = names(message.rows());
  mapping.cells = message.cells() || message.cell_names_size() != 0;
  mapping.cell_names = names(message.cell_names());
  mapping.apis = message.apis() || message.api_names_size() != 0;
  for (const v1::NameMapping::Api& api : message.api_names()) {
    mapping.api_names.push_back({api.target(), api.golden(), names(api.inputs()), names(api.outputs()),
                                 names(api.parameters()), names(api.parameters_grad())});
  }
  for (const v1::NameMapping::Layer& layer : message.layers()) {
    mapping.layers.emplace_back(layer.class_name(), names(layer.names()));
  }
  const int kinds = !mapping.rows.empty() + (mapping.cells || mapping.apis) + !mapping.layers.empty();
  if (kinds > 1) {
    return absl::InvalidArgumentError("mapping: give rows, or layers, or cells and apis");
  }
  return mapping;
}

}  // namespace

PlaceScope ScopeOf(const v1::Scope& message) {
  PlaceScope scope;
  for (const v1::Scope::Steps& steps : message.steps()) scope.steps.emplace_back(steps.first(), steps.last());
  for (const v1::Rank& rank : message.ranks()) scope.ranks.emplace_back(rank.kind(), rank.number());
  return scope;
}

absl::StatusOr<CompareOptions> CompareOptionsOf(const v1::CompareOptions& message, const std::string& name_glob) {
  CompareOptions options;
  options.mode = static_cast<CompareMode>(message.mode());
  options.fuzzy = message.matching() == v1::MATCHING_FUZZY;
  options.across_layouts = message.across_layouts();
  if (absl::Status status = AddTolerances(message.tolerances(), options.tolerances); !status.ok()) return status;
  auto mapping = MappingOf(message.mapping());
  if (!mapping.ok()) return mapping.status();
  options.mapping = *std::move(mapping);
  if (!name_glob.empty()) {
    options.wanted = [name_glob](std::string_view name) {
      return fnmatch(name_glob.c_str(), std::string(name).c_str(), 0) == 0;
    };
  }
  return options;
}

}  // namespace msprobe::server
