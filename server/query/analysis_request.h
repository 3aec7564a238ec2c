#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/analysis.pb.h"
#include "server/analysis/compare/comparison.h"
#include "server/analysis/compare/place_pairs.h"

namespace msprobe::server {

// What requests ask for, in the terms of the analyses.

// Steps and ranks; not the name.
PlaceScope ScopeOf(const v1::Scope& message);

// InvalidArgument: a negative tolerance, a dtype that does not exist.
absl::Status AddTolerances(const google::protobuf::RepeatedPtrField<v1::ToleranceSetting>& settings,
                           Tolerances& tolerances);

// InvalidArgument: more than one of rows, cells, apis and layers.
absl::StatusOr<NameMapping> MappingOf(const v1::NameMapping& message);

}  // namespace msprobe::server
