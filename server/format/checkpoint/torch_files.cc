#include <utility>

#include "server/format/cat.h"
#include "server/format/checkpoint/checkpoint.h"
#include "server/format/checkpoint/torch_archive.h"
#include "server/format/tensor_file/byte_source.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexSuffix = ".bin.index.json";
// Where training scripts keep the model in a file that holds more.
constexpr std::string_view kModelKeys[] = {"model", "state_dict", "model_state_dict", "module"};

bool IsTorchName(std::string_view name) {
  return name.ends_with(".pt") || name.ends_with(".pth") || name.ends_with(".bin") || name.ends_with(".ckpt");
}

absl::StatusOr<Checkpoint> OpenOne(const std::string& path, const CheckpointOptions& options) {
  auto archive = TorchArchive::Open(path);
  if (!archive.ok()) return archive.status();
  Checkpoint checkpoint;
  const PickleTree& tree = archive->tree();
  const PickleValue* model = nullptr;
  for (std::string_view key : kModelKeys) {
    const PickleValue* const found = tree.Find(tree.root(), key);
    if (model == nullptr && found != nullptr && found->kind == PickleValue::Kind::kDict) model = found;
  }
  if (model != nullptr && !options.optimizer) {
    checkpoint.notes.insert(Cat(fs::path(path).filename().string(),
                                " holds more than the model, which is left out; --optimizer takes everything"));
  }
  const PickleValue& from = model != nullptr && !options.optimizer ? *model : tree.root();
  if (absl::Status status = CollectTensors(*archive, from, "", checkpoint.tensors, checkpoint.notes); !status.ok()) {
    return status;
  }
  return checkpoint;
}

}  // namespace

bool IsTorchFiles(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    auto file = FileBytes::Open(path.string());
    char start[4];
    return file.ok() && (*file)->size() >= sizeof(start) && (*file)->ReadAt(0, start).ok() &&
           (IsTorchName(path.filename().string()) || std::string_view(start, 4) == "PK\x03\x04");
  }
  for (const std::string& name : NamesIn(path)) {
    if (IsTorchName(name)) return true;
  }
  return false;
}

absl::StatusOr<Checkpoint> OpenTorchFiles(const fs::path& path, const CheckpointOptions& options) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return OpenOne(path.string(), options);
  std::set<std::string> files;
  for (const std::string& name : NamesIn(path)) {
    if (name.ends_with(kIndexSuffix)) {
      auto index = FileIn(path, name);
      if (!index.ok()) return index.status();
      auto indexed = FilesOfIndex(*index);
      if (!indexed.ok()) return indexed.status();
      files = *std::move(indexed);
      break;
    }
    // What Trainer writes beside a model.
    const bool beside = name == "training_args.bin" || name == "scheduler.pt" || name.starts_with("rng_state") ||
                        name.starts_with("optimizer");
    if (IsTorchName(name) && !beside) files.insert(name);
  }
  Checkpoint checkpoint;
  for (const std::string& name : files) {
    auto file = FileIn(path, name);
    if (!file.ok()) return file.status();
    auto part = OpenOne(file->string(), options);
    if (!part.ok()) return part.status();
    if (absl::Status status = Merge(*std::move(part), checkpoint); !status.ok()) {
      return absl::InvalidArgumentError(Cat(path.string(), ": ", StdView(status.message())));
    }
  }
  checkpoint.attention = AttentionOfConfig(path);
  return checkpoint;
}

}  // namespace msprobe::server
