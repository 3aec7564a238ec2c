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

std::optional<std::vector<int64_t>> Integers(const PickleTree& tree, const PickleValue& value) {
  if (value.kind != Kind::kTuple) return std::nullopt;
  std::vector<int64_t> integers;
  for (PickleValue::Index index : value.items) {
    if (tree.at(index).kind != Kind::kInt) return std::nullopt;
    integers.push_back(tree.at(index).integer);
  }
  return integers;
}

std::string_view NameIn(std::string_view global, std::string_view module) {
  return global.starts_with(module) && global.substr(module.size()).starts_with(' ') ? global.substr(module.size() + 1)
                                                                                     : std::string_view();
}

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
  auto tree = PickleTree::Parse(*bytes, path);
  if (!tree.ok()) return tree.status();
  archive.tree_ = *std::move(tree);
  return archive;
}

absl::StatusOr<std::optional<LogicalTensor>> TorchArchive::TensorAt(const PickleValue& value) const {
  const PickleValue* at = &value;
  for (int depth = 0; depth < 4; ++depth) {
    const std::string_view called = tree_.CalledBy(*at);
    const PickleValue& arguments = tree_.at(at->arguments);
    if (called == "torch._utils _rebuild_parameter" || called == "torch._utils _rebuild_parameter_with_state") {
      if (arguments.items.empty()) return std::nullopt;
      at = &tree_.at(arguments.items[0]);
    } else if (called == "torch._tensor _rebuild_from_type_v2" && arguments.items.size() == 4) {
      return Rebuild(tree_.at(arguments.items[0]).text, tree_.at(arguments.items[2]));
    } else {
      return Rebuild(called, arguments);
    }
  }
  return std::nullopt;
}

absl::StatusOr<std::optional<LogicalTensor>> TorchArchive::Rebuild(std::string_view function,
                                                                   const PickleValue& arguments) const {
  const bool typed = function == "torch._utils _rebuild_tensor_v3";
  if (!typed && function != "torch._utils _rebuild_tensor_v2") return std::nullopt;
  const auto unfit = [&](std::string_view why) { return absl::InvalidArgumentError(Cat(path_, ": a tensor ", why)); };
  const size_t least = typed ? 7 : 6;
  if (arguments.items.size() < least) return unfit("is made of too little");
  const PickleValue& id = tree_.at(arguments.items[0]);
  if (id.kind != Kind::kPersistent) return unfit("has no storage");
  const PickleValue& storage = tree_.at(id.items[0]);
  if (storage.items.size() != 5) return unfit("has a storage of an unknown kind");
  const std::string& key = tree_.at(storage.items[2]).text;
  const auto found = storages_.find(key);
  if (found == storages_.end()) return unfit(Cat("has the storage ", key, ", which is not in the file"));
  const std::string_view type = tree_.at(storage.items[1]).text;
  StridedLayout layout;
  layout.description.dtype =
      typed ? DTypeOfName(NameIn(tree_.at(arguments.items[6]).text, "torch")) : DTypeOfStorage(NameIn(type, "torch"));
  auto shape = Integers(tree_, tree_.at(arguments.items[2]));
  auto strides = Integers(tree_, tree_.at(arguments.items[3]));
  const PickleValue& offset = tree_.at(arguments.items[1]);
  const size_t element = DTypeSize(layout.description.dtype);
  if (element == 0) return unfit(Cat("has the unknown storage ", type));
  if (!shape || !strides || offset.kind != Kind::kInt || offset.integer < 0) return unfit("has a shape that is none");
  layout.description.shape = *std::move(shape);
  layout.strides = *std::move(strides);
  layout.offset = static_cast<uint64_t>(offset.integer);
  if (arguments.items.size() > least && !tree_.at(arguments.items[least]).items.empty()) {
    return unfit("is a conjugated or negated view, which is not read");
  }
  if (absl::Status status = CheckLayout(layout, found->second.size); !status.ok()) {
    return unfit(Cat("does not fit its storage: ", StdView(status.message())));
  }
  LogicalTensor tensor = PlainTensor(layout.description.dtype, layout.description.shape, path_,
                                     found->second.offset + layout.offset * element);
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
