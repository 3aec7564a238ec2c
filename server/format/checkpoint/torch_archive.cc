#include "server/format/checkpoint/torch_archive.h"

#include <utility>

#include "server/format/cat.h"
#include "server/format/checkpoint/checkpoint.h"
#include "server/format/dtype_name.h"
#include "server/format/tensor_file/byte_source.h"
#include "server/format/tensor_file/strided_content.h"
#include "server/format/tensor_file/tensor_pickle.h"
#include "server/format/tensor_file/zip_reader.h"

namespace msprobe::server {
namespace {

using Kind = PickleValue::Kind;

constexpr uint64_t kMaxPickle = 256 << 20;
constexpr int kMaxDepth = 32;
constexpr size_t kMaxTensors = 1 << 20;

// A part of a file. Borrows it.
class PartOfFile : public ByteSource {
 public:
  PartOfFile(ByteSource& file, uint64_t offset, uint64_t size) : file_(file), offset_(offset), size_(size) {}

  uint64_t size() const override { return size_; }
  absl::Status ReadAt(uint64_t offset, std::span<char> out) override {
    if (offset > size_ || out.size() > size_ - offset) return absl::OutOfRangeError("beyond the part of a file");
    return file_.ReadAt(offset_ + offset, out);
  }

 private:
  ByteSource& file_;
  const uint64_t offset_;
  const uint64_t size_;
};

}  // namespace

absl::StatusOr<TorchArchive> TorchArchive::Open(const std::string& path) {
  auto file = FileBytes::Open(path);
  if (!file.ok()) return file.status();
  return Open(path, 0, (*file)->size());
}

absl::StatusOr<TorchArchive> TorchArchive::Open(const std::string& path, uint64_t offset, uint64_t size) {
  auto file = FileBytes::Open(path);
  if (!file.ok()) return file.status();
  const auto bad = [&](std::string_view why) { return absl::InvalidArgumentError(Cat(path, ": ", why)); };
  if (offset > (*file)->size() || size > (*file)->size() - offset) {
    return bad(Cat("bytes ", offset, "+", size, " are beyond its end"));
  }
  PartOfFile part(**file, offset, size);
  auto zip = ZipReader::Open(part);
  if (!zip.ok()) return bad(StdView(zip.status().message()));
  constexpr std::string_view kPickle = "/data.pkl";
  const ZipEntry* pickle = nullptr;
  for (const ZipEntry& entry : zip->entries()) {
    if (std::string_view(entry.name).ends_with(kPickle)) pickle = &entry;
  }
  if (pickle == nullptr) return bad("a zip without data.pkl is no file of torch.save");
  const std::string folder = pickle->name.substr(0, pickle->name.size() - kPickle.size() + 1);
  if (const ZipEntry* order = zip->Find(Cat(folder, "byteorder")); order != nullptr) {
    auto text = zip->ReadWhole(*order, 16);
    if (!text.ok()) return bad(StdView(text.status().message()));
    if (*text != "little") return bad(Cat("its byte order is ", *text, "; only little is read"));
  }
  TorchArchive archive;
  archive.path_ = path;
  const std::string data = Cat(folder, "data/");
  for (const ZipEntry& entry : zip->entries()) {
    if (!entry.name.starts_with(data)) continue;
    if (entry.deflated) return bad(Cat("zip entry ", entry.name, " is compressed; torch.save writes none"));
    auto at = zip->ContentOffset(entry);
    if (!at.ok()) return bad(StdView(at.status().message()));
    archive.storages_.emplace(entry.name.substr(data.size()), Storage{offset + *at, entry.size});
  }
  auto bytes = zip->ReadWhole(*pickle, kMaxPickle);
  if (!bytes.ok()) return bad(StdView(bytes.status().message()));
  auto tree = PickleTree::Parse(*bytes);
  if (!tree.ok()) return bad(StdView(tree.status().message()));
  archive.tree_ = *std::move(tree);
  return archive;
}

absl::StatusOr<std::optional<LogicalTensor>> TorchArchive::TensorAt(const PickleValue& value) const {
  auto found = TensorOf(tree_, value);
  if (!found.ok()) return absl::InvalidArgumentError(Cat(path_, ": ", StdView(found.status().message())));
  if (!found->has_value() || IsQuantized((*found)->layout.description.dtype)) return std::nullopt;
  const StridedLayout& layout = (*found)->layout;
  const auto unfit = [&](std::string_view why) { return absl::InvalidArgumentError(Cat(path_, ": a tensor ", why)); };
  if (layout.conjugate || layout.negative) return unfit("is a conjugated or negated view, which is not read");
  const std::string& key = (*found)->storage_key;
  const auto storage = storages_.find(key);
  if (storage == storages_.end()) return unfit(Cat("has the storage ", key, ", which is not in the file"));
  if (absl::Status status = CheckLayout(layout, storage->second.size); !status.ok()) {
    return unfit(Cat("does not fit its storage: ", StdView(status.message())));
  }
  const size_t element = DTypeSize(layout.description.dtype);
  LogicalTensor tensor = PlainTensor(layout.description.dtype, layout.description.shape, path_,
                                     storage->second.offset + layout.offset * element);
  for (size_t i = 0; i < layout.strides.size(); ++i) {
    // Beyond any storage where nothing is read: an empty tensor may have any strides.
    if (tensor.elements() != 0) tensor.pieces[0].strides[i] = layout.strides[i] * static_cast<int64_t>(element);
  }
  return tensor;
}

namespace {

class Collector {
 public:
  Collector(const TorchArchive& archive, std::map<std::string, LogicalTensor>& tensors, std::set<std::string>& notes)
      : archive_(archive), tensors_(tensors), notes_(notes) {}

  absl::Status Walk(const PickleValue& value, const std::string& name, int depth) {
    if (depth > kMaxDepth || ++walked_ > kMaxTensors * 4) {
      return absl::InvalidArgumentError(Cat(name, ": values are nested too deeply, or in themselves"));
    }
    auto tensor = archive_.TensorAt(value);
    if (!tensor.ok()) return absl::InvalidArgumentError(Cat(StdView(tensor.status().message()), " (", name, ")"));
    if (tensor->has_value()) {
      if (tensors_.size() >= kMaxTensors) return absl::InvalidArgumentError(Cat("over ", kMaxTensors, " tensors"));
      if (!tensors_.try_emplace(name, **std::move(tensor)).second) {
        return absl::InvalidArgumentError(Cat(name, " is there twice"));
      }
      return absl::OkStatus();
    }
    const PickleTree& tree = archive_.tree();
    if (value.kind == Kind::kDict) {
      for (size_t i = 0; i + 1 < value.items.size(); i += 2) {
        const PickleValue& key = tree.at(value.items[i]);
        if (key.kind != Kind::kInt && key.kind != Kind::kText) {
          notes_.insert(
              Cat(name.empty() ? "the file" : name, " has keys that are neither texts nor integers: left out"));
          continue;
        }
        std::string text = key.kind == Kind::kInt ? std::to_string(key.integer) : key.text;
        if (name.size() + text.size() > kMaxName) {
          return absl::InvalidArgumentError(Cat("a name of over ", kMaxName, " bytes: ", text.substr(0, 60)));
        }
        absl::Status status = Walk(tree.at(value.items[i + 1]), name.empty() ? text : Cat(name, ".", text), depth + 1);
        if (!status.ok()) return status;
      }
    } else if (value.kind == Kind::kList || value.kind == Kind::kTuple) {
      for (size_t i = 0; i < value.items.size(); ++i) {
        if (absl::Status status = Walk(tree.at(value.items[i]), Cat(name, ".", i), depth + 1); !status.ok()) {
          return status;
        }
      }
    } else if (value.kind == Kind::kObject) {
      notes_.insert(Cat(name, " is an object of ", tree.CalledBy(value), ", which is not called"));
    }
    return absl::OkStatus();
  }

 private:
  const TorchArchive& archive_;
  std::map<std::string, LogicalTensor>& tensors_;
  std::set<std::string>& notes_;
  size_t walked_ = 0;
};

}  // namespace

absl::Status CollectTensors(const TorchArchive& archive, const PickleValue& value, const std::string& prefix,
                            std::map<std::string, LogicalTensor>& tensors, std::set<std::string>& notes) {
  return Collector(archive, tensors, notes).Walk(value, prefix, 0);
}

}  // namespace msprobe::server
