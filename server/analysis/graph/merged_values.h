#pragma once

#include <string>
#include <vector>

#include "server/analysis/graph/merge_tree.h"

namespace msprobe::server::merge {

// Whether two values have the same statistics. uncertain: means and norms may differ as sums in another order do.
bool SameValues(const Value& a, const Value& b, bool uncertain);

// A value of the first rank, and the same of others.
struct Differing {
  std::string key;  // without the node's name
  std::vector<Value*> values;
};
using Differences = std::vector<Differing>;

// The inputs or outputs of a node (`which`) beside those of the same names in others; without values that ranks do not
// share. by_values: only those that differ.
Differences DifferencesOf(Node& main, const std::vector<Node*>& others, std::vector<Value> Node::*which,
                          bool by_values);

// Gives each first value the statistics that all have together: the maximum, the minimum, the mean, and the root of the
// sum of squared norms, in the tensor's own precision. Adds how it was computed to notes.
void MergeValues(const Differences& differences, std::vector<std::string>& notes);

}  // namespace msprobe::server::merge
