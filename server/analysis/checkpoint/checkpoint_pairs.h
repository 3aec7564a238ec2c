#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/format/checkpoint/checkpoint.h"

namespace msprobe::server {

// A tensor of the target and its partner in the golden checkpoint. Empty: one side lacks it.
struct CheckpointPair {
  std::string target;
  std::string golden;
  std::string note;  // how they came together, where not by their names
};

// Whether one of its names is `glob`, which an empty one always is.
bool IsNamed(const CheckpointPair& pair, const std::string& glob);

// Beginnings of names of the target that the golden checkpoint writes otherwise.
using Renames = std::vector<std::pair<std::string, std::string>>;

// Brings both sides to the same tensors. In this order: Megatron's names become Hugging Face's where only one side has
// Megatron's; fused projections (query, key and value; gate and up) are taken apart where the other side has the parts;
// then tensors are joined by name, then by their names without wrappers ("module.", "_orig_mod.", "model.", ...), and
// one that is left over by another of its side that shares its storage. Pairs are in the order of names.
std::vector<CheckpointPair> PairCheckpoints(Checkpoint& target, Checkpoint& golden, const Renames& renames);

}  // namespace msprobe::server
