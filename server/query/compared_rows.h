#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/analysis.pb.h"
#include "server/analysis/compare/comparison.h"
#include "server/query/opened_source.h"

namespace msprobe::server {

// InvalidArgument: a negative tolerance, a dtype that does not exist.
absl::Status AddTolerances(const google::protobuf::RepeatedPtrField<v1::ToleranceSetting>& settings,
                           Tolerances& tolerances);

// InvalidArgument: more than one of rows, cells, apis and layers.
absl::StatusOr<NameMapping> MappingOf(const v1::NameMapping& message);

// A judged row of an entry, as it is sent; without its order.
void FillComparedTensor(const StepTable& target, const StepTable& golden, const Entry& entry, const ComparedRow& row,
                        const std::vector<ContentResult>& contents, const OpenedSource::Place& place,
                        v1::ComparedTensor& out);

}  // namespace msprobe::server
