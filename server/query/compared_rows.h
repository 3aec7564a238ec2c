#pragma once

#include <vector>

#include "msprobe/v1/analysis.pb.h"
#include "server/analysis/compare/comparison.h"
#include "server/analysis/compare/place_pairs.h"

namespace msprobe::server {

// Writes a judged row of an entry as it is sent, all but its order.
void FillComparedTensor(const StepTable& target, const StepTable& golden, const Entry& entry, const ComparedRow& row,
                        const std::vector<ContentResult>& contents, const StepTables::Place& place,
                        v1::ComparedTensor& out);

void FillElementMetrics(const ElementwiseMetrics& metrics, v1::ElementMetrics& out);

v1::UnpairedStep UnpairedMessage(const UnpairedPlace& unpaired);

}  // namespace msprobe::server
