#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/format/checkpoint/logical_tensor.h"

namespace msprobe::server {

// What tells the parts of fused projections apart.
struct AttentionShape {
  int64_t heads = 0;
  int64_t groups = 0;  // of keys and values
  int64_t head_size = 0;
  bool gated = false;  // linear_fc1 holds a gate and an up projection

  // Files say anything; products of these fit an int64_t.
  bool is_sensible() const {
    const auto fits = [](int64_t number) { return number > 0 && number <= int64_t{1} << 16; };
    return fits(heads) && fits(groups) && groups <= heads && fits(head_size);
  }
};

// The tensors of one checkpoint, as the model has them, and where their elements lie. No element has been read.
struct Checkpoint {
  std::string layout;
  std::map<std::string, LogicalTensor> tensors;  // checked
  std::optional<AttentionShape> attention;
  std::set<std::string> notes;  // what was left out, and why: sentences
  bool has_elements = true;     // false: names, dtypes and shapes alone; nothing is taken apart
};

// Bytes of a tensor's name.
constexpr size_t kMaxName = 4096;

struct CheckpointOptions {
  bool optimizer = false;  // everything else that the files hold, too: optimizer state under its names
};

// A way to keep a checkpoint in files. A layout is one file and one line in CheckpointLayouts.
struct CheckpointLayout {
  std::string_view name;
  std::string_view about;  // what is looked for
  // Whether `path`, a file or a directory without symbolic links, is one.
  bool (*is)(const std::filesystem::path& path);
  absl::StatusOr<Checkpoint> (*open)(const std::filesystem::path& path, const CheckpointOptions& options);
};

// In the order in which they are tried.
std::span<const CheckpointLayout> CheckpointLayouts();

// Errors name the file. NotFound: nothing is there. InvalidArgument: it is no checkpoint of a known layout, or a
// damaged one. Links are followed, as in Hugging Face's cache; a name inside a checkpoint never leads out of its
// directory.
absl::StatusOr<Checkpoint> OpenCheckpoint(const std::string& path, const CheckpointOptions& options);

// For the layouts.

// A file that a checkpoint names: `name` has to be a plain name. Resolves links.
absl::StatusOr<std::filesystem::path> FileIn(const std::filesystem::path& directory, std::string_view name);
// Names of entries of a directory, in order.
std::vector<std::string> NamesIn(const std::filesystem::path& directory);
// A whole small file. InvalidArgument: it is larger than `limit`.
absl::StatusOr<std::string> WholeFile(const std::filesystem::path& path, uint64_t limit);
// The files of an index, {"weight_map": {tensor: file}}, which all have to lie beside it.
absl::StatusOr<std::set<std::string>> FilesOfIndex(const std::filesystem::path& index);
// Takes over what `part` has. InvalidArgument: both have a tensor of one name.
absl::Status Merge(Checkpoint part, Checkpoint& into);
// Of a config.json beside the files of a model; nothing where it is not there, or of another kind.
std::optional<AttentionShape> AttentionOfConfig(const std::filesystem::path& directory);

// One file each.
bool IsSafetensors(const std::filesystem::path& path);
absl::StatusOr<Checkpoint> OpenSafetensors(const std::filesystem::path& path, const CheckpointOptions& options);
bool IsTorchFiles(const std::filesystem::path& path);
absl::StatusOr<Checkpoint> OpenTorchFiles(const std::filesystem::path& path, const CheckpointOptions& options);
bool IsDistributed(const std::filesystem::path& path);
absl::StatusOr<Checkpoint> OpenDistributed(const std::filesystem::path& path, const CheckpointOptions& options);
bool IsMegatron(const std::filesystem::path& path);
absl::StatusOr<Checkpoint> OpenMegatron(const std::filesystem::path& path, const CheckpointOptions& options);

}  // namespace msprobe::server
