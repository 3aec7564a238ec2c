#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "server/format/cat.h"
#include "server/format/checkpoint/checkpoint.h"
#include "server/format/checkpoint/torch_archive.h"
#include "server/format/dtype_name.h"

// torch.distributed.checkpoint: .metadata is a pickle of its Metadata, which says of each tensor its chunks, and of
// each chunk its part of a .distcp file. Each part is a file of torch.save. FSDP, and Megatron's torch_dist, are kept
// so.

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;
using Kind = PickleValue::Kind;

constexpr uint64_t kMaxMetadata = 256 << 20;
constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata ";

struct Part {
  std::string file;
  int64_t offset = 0;
  int64_t length = 0;
};
using PartKey = std::pair<std::string, std::vector<int64_t>>;  // name, offsets of the chunk

class MetadataFile {
 public:
  MetadataFile(const fs::path& directory, const CheckpointOptions& options, PickleTree tree)
      : directory_(directory), options_(options), tree_(std::move(tree)) {}

  absl::StatusOr<Checkpoint> Open() {
    const PickleValue* const tensors = tree_.Find(tree_.root(), "state_dict_metadata");
    const PickleValue* const parts = tree_.Find(tree_.root(), "storage_data");
    if (tree_.CalledBy(tree_.root()) != Cat(kModule, "Metadata") || tensors == nullptr || parts == nullptr) {
      return Bad("it is not the Metadata of torch.distributed.checkpoint");
    }
    if (absl::Status status = ReadParts(*parts); !status.ok()) return status;
    Checkpoint checkpoint;
    for (size_t i = 0; i + 1 < tensors->items.size(); i += 2) {
      const std::string& name = tree_.at(tensors->items[i]).text;
      const PickleValue& about = tree_.at(tensors->items[i + 1]);
      if (tree_.CalledBy(about) != Cat(kModule, "TensorStorageMetadata")) continue;  // bytes: no tensor
      if (!options_.optimizer && IsOptimizer(name)) {
        checkpoint.notes.insert("optimizer state is left out; --optimizer takes it in");
        continue;
      }
      auto tensor = TensorOf(name, about);
      if (!tensor.ok()) return tensor.status();
      checkpoint.tensors.emplace(name, *std::move(tensor));
    }
    return checkpoint;
  }

 private:
  absl::Status Bad(std::string_view why) const {
    return absl::InvalidArgumentError(Cat((directory_ / ".metadata").string(), ": ", why));
  }

  static bool IsOptimizer(std::string_view name) {
    return name.starts_with("optim") || absl::StrContains(AbslView(name), ".optimizer.") ||
           absl::StrContains(AbslView(name), ".optim.");
  }

  // Of a torch.Size.
  absl::StatusOr<std::vector<int64_t>> SizeOf(const PickleValue* value) const {
    if (value == nullptr || tree_.CalledBy(*value) != "torch Size") return Bad("a size is no torch.Size");
    const PickleValue& arguments = tree_.at(value->arguments);
    std::vector<int64_t> sizes;
    if (arguments.items.empty()) return sizes;
    for (PickleValue::Index index : tree_.at(arguments.items[0]).items) {
      if (tree_.at(index).kind != Kind::kInt) return Bad("a size is no integer");
      sizes.push_back(tree_.at(index).integer);
    }
    return sizes;
  }

  absl::Status ReadParts(const PickleValue& parts) {
    for (size_t i = 0; i + 1 < parts.items.size(); i += 2) {
      const PickleValue& index = tree_.at(parts.items[i]);
      const PickleValue& info = tree_.at(parts.items[i + 1]);
      const PickleValue* const name = tree_.Find(index, "fqn");
      const PickleValue* const file = tree_.Find(info, "relative_path");
      const PickleValue* const offset = tree_.Find(info, "offset");
      const PickleValue* const length = tree_.Find(info, "length");
      if (name == nullptr || file == nullptr || offset == nullptr || length == nullptr || offset->integer < 0 ||
          length->integer < 0) {
        return Bad("an entry of storage_data lacks fqn, relative_path, offset or length");
      }
      const PickleValue* const transform = tree_.Find(info, "transform_descriptors");
      if (transform != nullptr && transform->kind != Kind::kNone && !transform->items.empty()) {
        return Bad(Cat(name->text, " is kept transformed (compressed or encrypted), which is not read"));
      }
      const PickleValue* const at = tree_.Find(index, "offset");
      if (at == nullptr || at->kind == Kind::kNone) continue;  // bytes: no tensor
      auto offsets = SizeOf(at);
      if (!offsets.ok()) return offsets.status();
      parts_[{name->text, *std::move(offsets)}] = {file->text, offset->integer, length->integer};
    }
    return absl::OkStatus();
  }

  absl::StatusOr<LogicalTensor> TensorOf(const std::string& name, const PickleValue& about) const {
    const PickleValue* const properties = tree_.Find(about, "properties");
    const PickleValue* const chunks = tree_.Find(about, "chunks");
    auto size = SizeOf(tree_.Find(about, "size"));
    if (!size.ok()) return size.status();
    if (properties == nullptr || chunks == nullptr) return Bad(Cat(name, " has no properties or chunks"));
    const PickleValue& state = tree_.at(properties->state);
    const std::string dtype = state.items.empty() ? "" : tree_.at(state.items[0]).text;
    LogicalTensor tensor;
    tensor.dtype = DTypeOfName(dtype.substr(std::min<size_t>(dtype.find(' ') + 1, dtype.size())));
    tensor.shape = *std::move(size);
    if (DTypeSize(tensor.dtype) == 0) return Bad(Cat(name, " has the unknown dtype ", dtype));
    for (PickleValue::Index chunk : chunks->items) {
      auto offsets = SizeOf(tree_.Find(tree_.at(chunk), "offsets"));
      if (!offsets.ok()) return offsets.status();
      auto sizes = SizeOf(tree_.Find(tree_.at(chunk), "sizes"));
      if (!sizes.ok()) return sizes.status();
      auto piece = PieceOf(name, tensor.dtype, *std::move(offsets), *sizes);
      if (!piece.ok()) return piece.status();
      tensor.pieces.push_back(*std::move(piece));
    }
    return tensor;
  }

  absl::StatusOr<TensorPiece> PieceOf(const std::string& name, v1::DType dtype, std::vector<int64_t> offsets,
                                      const std::vector<int64_t>& sizes) const {
    const auto part = parts_.find(PartKey(name, offsets));
    if (part == parts_.end()) return Bad(Cat("a chunk of ", name, " has no place in a file"));
    auto path = FileIn(directory_, part->second.file);
    if (!path.ok()) return path.status();
    auto archive = TorchArchive::Open(path->string(), static_cast<uint64_t>(part->second.offset),
                                      static_cast<uint64_t>(part->second.length));
    if (!archive.ok()) return archive.status();
    auto kept = archive->TensorAt(archive->tree().root());
    if (!kept.ok()) return kept.status();
    if (!kept->has_value() || (*kept)->dtype != dtype || (*kept)->shape != sizes) {
      return Bad(Cat("a chunk of ", name, " is not in ", part->second.file, " as .metadata says"));
    }
    TensorPiece piece = std::move((*kept)->pieces[0]);
    piece.begin = std::move(offsets);
    return piece;
  }

  const fs::path& directory_;
  const CheckpointOptions& options_;
  const PickleTree tree_;
  std::map<PartKey, Part> parts_;
};

}  // namespace

bool IsDistributed(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path / ".metadata", error);
}

absl::StatusOr<Checkpoint> OpenDistributed(const fs::path& path, const CheckpointOptions& options) {
  auto file = FileIn(path, ".metadata");
  if (!file.ok()) return file.status();
  auto content = WholeFile(*file, kMaxMetadata);
  if (!content.ok()) return content.status();
  auto tree = PickleTree::Parse(*content);
  if (!tree.ok()) return absl::InvalidArgumentError(Cat(file->string(), ": ", StdView(tree.status().message())));
  return MetadataFile(path, options, *std::move(tree)).Open();
}

}  // namespace msprobe::server
