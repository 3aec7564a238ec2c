#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "msprobe/v1/analysis.pb.h"
#include "server/analysis/compare/comparison.h"
#include "server/analysis/compare/place_pairs.h"

namespace msprobe::server {

// Translates requests into the terms of the analyses.

// Steps and ranks; not the name.
PlaceScope ScopeOf(const v1::Scope& message);

// The options that a request carries as fields of its own (see v1::CompareOptions).
template <typename Request>
v1::CompareOptions OptionsIn(const Request& request) {
  v1::CompareOptions options;
  if constexpr (requires { request.matching(); }) options.set_matching(request.matching());
  if constexpr (requires { request.mode(); }) options.set_mode(request.mode());
  if constexpr (requires { request.tolerances(); }) *options.mutable_tolerances() = request.tolerances();
  if constexpr (requires { request.mapping(); }) *options.mutable_mapping() = request.mapping();
  if constexpr (requires { request.across_layouts(); }) options.set_across_layouts(request.across_layouts());
  return options;
}

// `name_glob`: shell pattern over full names of records; empty: all.
// InvalidArgument: a negative tolerance, a dtype that does not exist, rows, layers, or cells and apis together.
absl::StatusOr<CompareOptions> CompareOptionsOf(const v1::CompareOptions& message, const std::string& name_glob);

}  // namespace msprobe::server
