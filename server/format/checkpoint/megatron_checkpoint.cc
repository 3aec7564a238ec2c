#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "server/format/cat.h"
#include "server/format/checkpoint/checkpoint.h"
#include "server/format/checkpoint/torch_archive.h"

// Megatron-LM's format "torch": latest_checkpointed_iteration.txt names iter_%07d or release, where each rank of tensor
// (T), pipeline (P) and expert parallelism (E) has a directory mp_rank_TT[_PPP][_EEE] with one file. The file's args
// say which of P and E are there. With virtual pipeline stages it holds model0, model1, ... instead of model.

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;
using Kind = PickleValue::Kind;

constexpr std::string_view kTracker = "latest_checkpointed_iteration.txt";
constexpr std::array<std::string_view, 4> kFiles = {"model_optim_rng.pt", "model_rng.pt", "model.pt",
                                                    "model_states.pt"};

// Split along their first dimension.
constexpr std::array<std::string_view, 10> kColumns = {
    "word_embeddings.weight", "output_layer.weight", "linear_qkv.weight", "linear_qkv.bias",   "query_key_value.",
    "linear_fc1.weight",      "linear_fc1.bias",     "dense_h_to_4h.",    "linear_q_up_proj.", "linear_kv_up_proj."};
// Split along their second one; their bias is on every rank.
constexpr std::array<std::string_view, 4> kRows = {"linear_proj.weight", "linear_fc2.weight", "attention.dense.weight",
                                                   "dense_4h_to_h.weight"};

template <size_t kCount>
bool HasOneOf(std::string_view name, const std::array<std::string_view, kCount>& parts) {
  return std::any_of(parts.begin(), parts.end(), [&](auto part) { return name.find(part) != std::string_view::npos; });
}

// The number behind `marker` in a name.
struct NumberIn {
  size_t begin = 0;
  size_t end = 0;
  int64_t value = 0;
};
std::optional<NumberIn> Numbered(std::string_view name, std::string_view marker) {
  const size_t at = name.find(marker);
  if (at == std::string_view::npos) return std::nullopt;
  NumberIn found;
  found.begin = at + marker.size();
  const char* const end = name.data() + name.size();
  const auto [after, error] = std::from_chars(name.data() + found.begin, end, found.value);
  if (error != std::errc() || found.value < 0) return std::nullopt;
  found.end = static_cast<size_t>(after - name.data());
  return found;
}

constexpr std::array<std::string_view, 4> kExperts = {"local_experts.", "experts.linear_fc1.weight",
                                                      "experts.linear_fc2.weight", "experts.linear_fc1.bias"};
std::optional<NumberIn> ExpertIn(std::string_view name) {
  for (std::string_view marker : kExperts) {
    if (auto found = Numbered(name, marker)) return found;
  }
  return std::nullopt;
}

std::string WithNumber(const std::string& name, const NumberIn& at, int64_t number) {
  return Cat(std::string_view(name).substr(0, at.begin), number, std::string_view(name).substr(at.end));
}

struct RankOfFile {
  int64_t tensor = 0;
  int64_t pipeline = 0;
  int64_t expert = 0;
  auto operator<=>(const RankOfFile&) const = default;  // NOLINT(modernize-use-nullptr): it has no pointer
};

constexpr int64_t kMaxRanks = 1 << 20;

// The numbers of mp_rank_00_001_002; nothing: another name.
std::vector<int64_t> RankNumbers(std::string_view name) {
  constexpr std::string_view kPrefix = "mp_rank_";
  std::vector<int64_t> numbers;
  if (!name.starts_with(kPrefix)) return numbers;
  name.remove_prefix(kPrefix.size());
  while (!name.empty()) {
    int64_t number = 0;
    const auto [after, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error != std::errc() || number < 0 || number >= kMaxRanks || numbers.size() == 3) return {};
    numbers.push_back(number);
    name.remove_prefix(static_cast<size_t>(after - name.data()));
    if (!name.empty() && name.front() != '_') return {};
    if (!name.empty()) name.remove_prefix(1);
  }
  return numbers;
}

// What a rank's file holds, chunk after chunk of its virtual pipeline stages.
struct RankFile {
  std::vector<std::map<std::string, LogicalTensor>> chunks;
};

class RankFiles {
 public:
  explicit RankFiles(fs::path directory) : directory_(std::move(directory)) {}

  absl::StatusOr<Checkpoint> Open() {
    for (const std::string& name : NamesIn(directory_)) {
      if (absl::Status status = Add(name); !status.ok()) return status;
    }
    if (absl::Status status = CheckRanks(); !status.ok()) return status;
    for (size_t chunk = 0; chunk < files_.begin()->second.chunks.size(); ++chunk) {
      for (int64_t stage = 0; stage < Count(&RankOfFile::pipeline); ++stage) {
        if (absl::Status status = AddStage(chunk, stage); !status.ok()) return status;
      }
    }
    checkpoint_.notes.insert("optimizer state of Megatron's ranks is left out: it has no names to join it by");
    return std::move(checkpoint_);
  }

 private:
  absl::Status Bad(std::string_view why) const {
    return absl::InvalidArgumentError(Cat(directory_.string(), ": ", why));
  }

  int64_t Count(int64_t RankOfFile::*number) const {
    int64_t count = 0;
    for (const auto& [rank, file] : files_) count = std::max(count, rank.*number + 1);
    return count;
  }

  absl::Status Add(const std::string& name) {
    const std::vector<int64_t> numbers = RankNumbers(name);
    if (numbers.empty()) return absl::OkStatus();
    for (std::string_view file : kFiles) {
      std::error_code error;
      const fs::path path = fs::canonical(directory_ / name / file, error);
      if (error) continue;
      auto archive = TorchArchive::Open(path.string());
      if (!archive.ok()) return archive.status();
      ReadArguments(*archive);
      RankOfFile rank{.tensor = numbers[0]};
      if (numbers.size() > 1) (numbers.size() == 2 && pipelines_ <= 1 ? rank.expert : rank.pipeline) = numbers[1];
      if (numbers.size() > 2) rank.expert = numbers[2];
      return AddModel(*archive, files_[rank]);
    }
    return Bad(Cat(name, " has no ", kFiles[0]));
  }

  absl::Status AddModel(const TorchArchive& archive, RankFile& file) {
    const PickleTree& tree = archive.tree();
    const auto add = [&](const PickleValue& model) {
      std::set<std::string> extra;  // _extra_state of TransformerEngine
      return CollectTensors(archive, model, "", file.chunks.emplace_back(), extra);
    };
    if (const PickleValue* model = tree.Find(tree.root(), "model")) return add(*model);
    for (int chunk = 0;; ++chunk) {
      const PickleValue* const model = tree.Find(tree.root(), Cat("model", chunk));
      if (model == nullptr) return chunk > 0 ? absl::OkStatus() : Bad("a rank's file has neither model nor model0");
      if (absl::Status status = add(*model); !status.ok()) return status;
    }
  }

  // Of argparse's Namespace.
  void ReadArguments(const TorchArchive& archive) {
    const PickleTree& tree = archive.tree();
    const PickleValue* const args = tree.Find(tree.root(), "args");
    if (args == nullptr || read_) return;
    read_ = true;
    const auto number = [&](std::string_view key, int64_t otherwise) {
      const PickleValue* const value = tree.Find(*args, key);
      return value != nullptr && (value->kind == Kind::kInt || value->kind == Kind::kBool) ? value->integer : otherwise;
    };
    pipelines_ = number("pipeline_model_parallel_size", 1);
    AttentionShape shape;
    shape.heads = number("num_attention_heads", 0);
    shape.groups = number("group_query_attention", 0) != 0 ? number("num_query_groups", shape.heads) : shape.heads;
    shape.head_size = number("kv_channels", shape.heads > 0 ? number("hidden_size", 0) / shape.heads : 0);
    shape.gated = number("swiglu", 0) != 0 || number("gated_linear_unit", 0) != 0;
    if (shape.is_sensible()) checkpoint_.attention = shape;
  }

  absl::Status CheckRanks() const {
    if (files_.empty()) return Bad("it has no mp_rank_ directories");
    const int64_t tensors = Count(&RankOfFile::tensor), pipelines = Count(&RankOfFile::pipeline),
                  experts = Count(&RankOfFile::expert);
    if (static_cast<uint64_t>(tensors) * static_cast<uint64_t>(pipelines) * static_cast<uint64_t>(experts) !=
        files_.size()) {
      return Bad(Cat("it has the files of ", files_.size(), " ranks; ", tensors, " x ", pipelines, " x ", experts,
                     " (tensor x pipeline x expert) should be there"));
    }
    for (const auto& [rank, file] : files_) {
      if (file.chunks.size() != files_.begin()->second.chunks.size()) return Bad("its ranks have other virtual stages");
    }
    return absl::OkStatus();
  }

  // The layers of a chunk of a stage follow those of the chunk on the stage before.
  absl::Status AddStage(size_t chunk, int64_t stage) {
    int64_t layers = 0;
    for (const auto& [rank, file] : files_) {
      if (rank.pipeline != stage || rank.tensor != 0) continue;
      for (const auto& [name, tensor] : file.chunks[chunk]) {
        const auto layer = Numbered(name, "layers.");
        if (layer) layers = std::max(layers, layer->value + 1);
        const auto expert = ExpertIn(name);
        if (rank.expert != 0 && !expert) continue;  // the same on every rank of experts
        std::string global = name;
        if (expert) {
          const int64_t first = rank.expert * ExpertsOf(file.chunks[chunk]);
          global = WithNumber(global, *expert, first + expert->value);
        }
        if (layer) global = WithNumber(global, *Numbered(global, "layers."), layers_ + layer->value);
        auto joined = Join(name, chunk, rank);
        if (!joined.ok()) return joined.status();
        const auto [at, added] = checkpoint_.tensors.try_emplace(global, *std::move(joined));
        // The last stage of a model with tied embeddings has them again.
        if (!added && !absl::StrContains(AbslView(name), "word_embeddings")) return Bad(Cat(global, " is there twice"));
      }
    }
    layers_ += layers;
    return absl::OkStatus();
  }

  static int64_t ExpertsOf(const std::map<std::string, LogicalTensor>& tensors) {
    int64_t count = 0;
    for (const auto& [name, tensor] : tensors) {
      if (const auto expert = ExpertIn(name)) count = std::max(count, expert->value + 1);
    }
    return count;
  }

  static bool IsEven(const LogicalTensor& tensor) { return !tensor.shape.empty() && tensor.shape[0] % 2 == 0; }

  absl::StatusOr<LogicalTensor> Join(const std::string& name, size_t chunk, RankOfFile rank) {
    std::vector<LogicalTensor> parts;
    for (rank.tensor = 0; rank.tensor < Count(&RankOfFile::tensor); ++rank.tensor) {
      const auto& tensors = files_.at(rank).chunks[chunk];
      const auto found = tensors.find(name);
      if (found == tensors.end()) return Bad(Cat("tensor rank ", rank.tensor, " lacks ", name));
      parts.push_back(found->second);
    }
    const bool gate = checkpoint_.attention && checkpoint_.attention->gated &&
                      absl::StrContains(AbslView(name), "linear_fc1") &&
                      std::all_of(parts.begin(), parts.end(), IsEven);
    const bool norm = absl::StrContains(AbslView(name), "layer_norm_");
    absl::StatusOr<LogicalTensor> joined = parts[0];
    if (parts.size() > 1 && HasOneOf(name, kColumns) && !norm) {
      if (gate) {  // each rank has its gate above its up projection
        std::vector<LogicalTensor> halves;
        for (int half = 0; half < 2; ++half) {
          for (const LogicalTensor& part : parts) {
            const int64_t size = part.shape[0] / 2;
            halves.push_back(SliceTensor(part, 0, half * size, (half + 1) * size));
          }
        }
        parts = std::move(halves);
      }
      joined = JoinTensors(parts, 0);
    } else if (parts.size() > 1 && HasOneOf(name, kRows)) {
      joined = JoinTensors(parts, 1);
    }
    if (!joined.ok()) return Bad(Cat(name, " of the tensor ranks: ", StdView(joined.status().message())));
    return joined;
  }

  const fs::path directory_;
  std::map<RankOfFile, RankFile> files_;
  Checkpoint checkpoint_;
  int64_t pipelines_ = 1;
  bool read_ = false;
  int64_t layers_ = 0;  // of the stages so far
};

}  // namespace

bool IsMegatron(const fs::path& path) {
  for (const std::string& name : NamesIn(path)) {
    if (name == kTracker || !RankNumbers(name).empty()) return true;
  }
  return false;
}

absl::StatusOr<Checkpoint> OpenMegatron(const fs::path& path, const CheckpointOptions& options) {
  std::error_code error;
  if (!fs::exists(path / kTracker, error)) return RankFiles(path).Open();
  auto file = FileIn(path, kTracker);
  if (!file.ok()) return file.status();
  auto content = WholeFile(*file, 64);
  if (!content.ok()) return content.status();
  std::string text = content->substr(0, content->find_last_not_of(" \r\n") + 1);
  int64_t iteration = -1;
  const auto [after, wrong] = std::from_chars(text.data(), text.data() + text.size(), iteration);
  if (text != "release" && (wrong != std::errc() || after != text.data() + text.size() || iteration < 0)) {
    return absl::InvalidArgumentError(Cat(file->string(), " holds \"", text, "\"; it should be a number or release"));
  }
  auto directory = FileIn(path, text == "release" ? text : absl::StrFormat("iter_%07d", iteration));
  if (!directory.ok()) return directory.status();
  if (!IsDistributed(*directory)) return RankFiles(*directory).Open();
  auto distributed = OpenDistributed(*directory, options);
  if (distributed.ok()) distributed->layout = "dcp";
  return distributed;
}

}  // namespace msprobe::server
