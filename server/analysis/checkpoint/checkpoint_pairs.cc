#include "server/analysis/checkpoint/checkpoint_pairs.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// What wraps a model adds to names, in any place.
constexpr std::array<std::string_view, 4> kWrappers = {"module.", "_orig_mod.", "_fsdp_wrapped_module.",
                                                       "_checkpoint_wrapped_module."};
// What stands before the name of every tensor but the head.
constexpr std::array<std::string_view, 3> kPrefixes = {"state_dict.", "model.", "transformer."};

std::string BareName(std::string_view name) {
  std::string bare(name);
  for (std::string_view wrapper : kWrappers) {
    for (size_t at = bare.find(wrapper); at != std::string::npos; at = bare.find(wrapper, at)) {
      if (at == 0 || bare[at - 1] == '.') {
        bare.erase(at, wrapper.size());
      } else {
        ++at;
      }
    }
  }
  for (bool again = true; again;) {
    again = false;
    for (std::string_view prefix : kPrefixes) {
      if (!bare.starts_with(prefix)) continue;
      bare.erase(0, prefix.size());
      again = true;
    }
  }
  return bare;
}

bool IsMegatronNamed(const Checkpoint& checkpoint) {
  return std::any_of(checkpoint.tensors.begin(), checkpoint.tensors.end(),
                     [](const auto& each) { return absl::StrContains(AbslView(each.first), "linear_qkv.weight"); });
}

// Megatron-core's names of a GPT model, and those of Llama and its kin. Longer ones first.
std::string HuggingFaceName(std::string_view name) {
  std::string translated =
      absl::StrReplaceAll(AbslView(name), {
                                              {"embedding.word_embeddings.", "model.embed_tokens."},
                                              {"decoder.final_layernorm.", "model.norm."},
                                              {"output_layer.", "lm_head."},
                                              {"decoder.layers.", "model.layers."},
                                              {"self_attention.linear_proj.", "self_attn.o_proj."},
                                              {"self_attention.q_layernorm.", "self_attn.q_norm."},
                                              {"self_attention.k_layernorm.", "self_attn.k_norm."},
                                              {"self_attention.linear_qkv.layer_norm_", "input_layernorm."},
                                              {"self_attention.linear_qkv.", "self_attn.linear_qkv."},
                                              {"mlp.linear_fc1.layer_norm_", "post_attention_layernorm."},
                                              {"pre_mlp_layernorm.", "post_attention_layernorm."},
                                              {"mlp.experts.local_experts.", "mlp.experts."},
                                              {"mlp.router.", "mlp.gate."},
                                              {"linear_fc2.", "down_proj."},
                                          });
  return translated;
}

void Translate(Checkpoint& checkpoint) {
  std::map<std::string, LogicalTensor> translated;
  for (auto& [name, tensor] : checkpoint.tensors) translated.try_emplace(HuggingFaceName(name), std::move(tensor));
  checkpoint.tensors = std::move(translated);
}

// The rows of `tensor` from each of `groups` equal blocks: `size` of them, from `begin` on.
LogicalTensor RowsOfGroups(const LogicalTensor& tensor, int64_t groups, int64_t begin, int64_t size) {
  const int64_t block = tensor.shape[0] / groups;
  std::vector<LogicalTensor> rows;
  for (int64_t group = 0; group < groups; ++group) {
    rows.push_back(SliceTensor(tensor, 0, group * block + begin, group * block + begin + size));
  }
  return *JoinTensors(rows, 0);
}

struct FusedPart {
  std::string_view name;
  int64_t begin;  // rows in each group
  int64_t size;
};
struct Fusion {
  std::string_view name;
  int64_t groups = 1;
  std::vector<FusedPart> parts = {};
};

// What a checkpoint may keep in one tensor. "linear_qkv" has a block for each group of queries.
std::vector<Fusion> FusionsOf(const Checkpoint& checkpoint, int64_t fc1_rows) {
  std::vector<Fusion> fusions;
  for (std::string_view name : {"gate_up_proj", "linear_fc1"}) {
    fusions.push_back({name, 1, {{"gate_proj", 0, fc1_rows / 2}, {"up_proj", fc1_rows / 2, fc1_rows / 2}}});
  }
  if (!checkpoint.attention) return fusions;
  const AttentionShape& shape = *checkpoint.attention;
  const int64_t of_query = shape.heads / shape.groups * shape.head_size;
  fusions.push_back({"linear_qkv",
                     shape.groups,
                     {{"q_proj", 0, of_query},
                      {"k_proj", of_query, shape.head_size},
                      {"v_proj", of_query + shape.head_size, shape.head_size}}});
  const int64_t queries = shape.heads * shape.head_size, keys = shape.groups * shape.head_size;
  fusions.push_back(
      {"qkv_proj", 1, {{"q_proj", 0, queries}, {"k_proj", queries, keys}, {"v_proj", queries + keys, keys}}});
  return fusions;
}

// Takes one tensor apart if the other side has its first part.
void TakeApart(Checkpoint& checkpoint, const std::map<std::string, std::string>& others, const std::string& name) {
  const LogicalTensor& tensor = checkpoint.tensors.at(name);
  if (tensor.shape.empty()) return;
  for (const Fusion& fusion : FusionsOf(checkpoint, tensor.shape[0])) {
    const size_t at = name.find(Cat(".", fusion.name, "."));
    if (at == std::string::npos) continue;
    const auto part_name = [&](const FusedPart& part) {
      std::string made = name;
      return made.replace(at + 1, fusion.name.size(), part.name);
    };
    int64_t rows = 0;
    for (const FusedPart& part : fusion.parts) rows += part.size;
    if (rows * fusion.groups != tensor.shape[0] || !others.contains(BareName(part_name(fusion.parts[0])))) continue;
    for (const FusedPart& part : fusion.parts) {
      checkpoint.tensors.try_emplace(part_name(part), RowsOfGroups(tensor, fusion.groups, part.begin, part.size));
    }
    checkpoint.tensors.erase(name);
    checkpoint.notes.insert(Cat(fusion.name, " is taken apart by rows"));
    return;
  }
}

// Names by their bare form; of two with one form the first.
std::map<std::string, std::string> BareNames(const Checkpoint& checkpoint) {
  std::map<std::string, std::string> names;
  for (const auto& [name, tensor] : checkpoint.tensors) names.try_emplace(BareName(name), name);
  return names;
}

void TakeApartAll(Checkpoint& checkpoint, const Checkpoint& other) {
  if (!checkpoint.has_elements) return;
  const auto others = BareNames(other);
  std::vector<std::string> names;
  for (const auto& [name, tensor] : checkpoint.tensors) {
    if (!others.contains(BareName(name))) names.push_back(name);
  }
  for (const std::string& name : names) TakeApart(checkpoint, others, name);
}

// Tensors of one checkpoint that have the same elements in its files.
class TiedTensors {
 public:
  explicit TiedTensors(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
    for (const auto& [name, tensor] : checkpoint.tensors) {
      if (!tensor.pieces.empty()) by_place_[PlaceOf(tensor)].push_back(name);
    }
  }

  // The first other one; empty: there is none.
  std::string Of(const std::string& name) const {
    const LogicalTensor& tensor = checkpoint_.tensors.at(name);
    const auto found = tensor.pieces.empty() ? by_place_.end() : by_place_.find(PlaceOf(tensor));
    if (found == by_place_.end()) return "";
    for (const std::string& other : found->second) {
      if (other != name && checkpoint_.tensors.at(other) == tensor) return other;
    }
    return "";
  }

 private:
  using Place = std::pair<std::string_view, uint64_t>;  // of the first piece
  static Place PlaceOf(const LogicalTensor& tensor) { return {tensor.pieces[0].path, tensor.pieces[0].offset}; }

  const Checkpoint& checkpoint_;
  std::map<Place, std::vector<std::string>> by_place_;
};

// A tensor that only `side` has: its tied partner's partner on the other side.
void PairTied(const TiedTensors& side, const std::string& name, const std::map<std::string, std::string>& others,
              std::string& other, std::string& note) {
  const std::string tied = side.Of(name);
  if (tied.empty()) return;
  const auto found = others.find(BareName(tied));
  if (found == others.end()) return;
  other = found->second;
  note = Cat("tied to ", tied);
}

}  // namespace

bool IsNamed(const CheckpointPair& pair, const std::string& glob) {
  const auto matches = [&](const std::string& name) {
    return !name.empty() && fnmatch(glob.c_str(), name.c_str(), 0) == 0;
  };
  return glob.empty() || matches(pair.target) || matches(pair.golden);
}

std::vector<CheckpointPair> PairCheckpoints(Checkpoint& target, Checkpoint& golden, const Renames& renames) {
  const bool target_megatron = IsMegatronNamed(target), golden_megatron = IsMegatronNamed(golden);
  if (target_megatron != golden_megatron) Translate(target_megatron ? target : golden);
  for (const auto& [from, to] : renames) {
    std::map<std::string, LogicalTensor> renamed;
    for (auto& [name, tensor] : target.tensors) {
      renamed.try_emplace(name.starts_with(from) ? Cat(to, name.substr(from.size())) : name, std::move(tensor));
    }
    target.tensors = std::move(renamed);
  }
  TakeApartAll(target, golden);
  TakeApartAll(golden, target);

  const auto targets = BareNames(target), goldens = BareNames(golden);
  const TiedTensors tied_targets(target), tied_goldens(golden);
  std::map<std::string, CheckpointPair> pairs;  // by the target's name, else the golden one's
  std::set<std::string> taken;
  for (const auto& [name, tensor] : target.tensors) {
    CheckpointPair& pair = pairs[name];
    pair.target = name;
    const auto bare = goldens.find(BareName(name));
    if (golden.tensors.contains(name)) {
      pair.golden = name;
    } else if (bare != goldens.end() && !target.tensors.contains(bare->second)) {
      pair.golden = bare->second;
    } else {
      PairTied(tied_targets, name, goldens, pair.golden, pair.note);
    }
    taken.insert(pair.golden);
  }
  for (const auto& [name, tensor] : golden.tensors) {
    if (taken.contains(name)) continue;
    CheckpointPair& pair = pairs[name];
    pair.golden = name;
    PairTied(tied_goldens, name, targets, pair.target, pair.note);
  }
  std::vector<CheckpointPair> ordered;
  for (auto& [name, pair] : pairs) ordered.push_back(std::move(pair));
  return ordered;
}

}  // namespace msprobe::server
