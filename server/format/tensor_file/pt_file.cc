#include "server/format/tensor_file/pt_file.h"

#include <xxhash.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/tensor_file/zip_writer.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kMaxSmallEntry = 1 << 20;
constexpr uint64_t kMaxGatheredStorage = 16ull << 30;
constexpr size_t kMaxName = 255;

class PtFileWriter : public TensorFileWriter {
 public:
  PtFileWriter(std::string name, TensorDescription description, ByteSink sink)
      : name_(std::move(name)), description_(std::move(description)), sink_(std::move(sink)), zip_(&sink_) {}

  absl::Status Start(std::string_view pickle, uint64_t size) {
    if (absl::Status status = zip_.Add(Cat(name_, "/data.pkl"), pickle); !status.ok()) return status;
    const uint32_t pickle_crc = zip_.crc();
    if (absl::Status status = zip_.Add(Cat(name_, "/.format_version"), "1"); !status.ok()) return status;
    if (absl::Status status = zip_.Add(Cat(name_, "/.storage_alignment"), "64"); !status.ok()) return status;
    if (absl::Status status = zip_.Add(Cat(name_, "/byteorder"), "little"); !status.ok()) return status;
    names_hash_ = XXH3_64bits_withSeed(name_.data(), name_.size(), pickle_crc);
    return zip_.Begin(Cat(name_, "/data/0"), size);
  }

  const TensorDescription& description() const override { return description_; }
  absl::Status Append(std::string_view content) override { return zip_.Append(content); }

  absl::Status Finish() override {
    if (absl::Status status = zip_.End(); !status.ok()) return status;
    const uint32_t content_crc = zip_.crc();
    if (absl::Status status = zip_.Add(Cat(name_, "/version"), "3\n"); !status.ok()) return status;
    const std::string id = absl::StrFormat("%020d%020d", names_hash_, content_crc);
    if (absl::Status status = zip_.Add(Cat(name_, "/.data/serialization_id"), id); !status.ok()) return status;
    return zip_.Finish();
  }

 private:
  const std::string name_;
  const TensorDescription description_;
  ByteSink sink_;
  ZipWriter zip_;
  uint64_t names_hash_ = 0;
};

absl::Status AtByteOrder(ZipReader& zip, const std::string& folder, StridedLayout& layout) {
  const ZipEntry* entry = zip.Find(Cat(folder, "byteorder"));
  if (entry == nullptr) return absl::OkStatus();
  absl::StatusOr<std::string> order = zip.ReadWhole(*entry, 16);
  if (!order.ok()) return order.status();
  if (*order != "little" && *order != "big") {
    return absl::InvalidArgumentError("the file's byteorder is neither little nor big");
  }
  layout.big_endian = *order == "big";
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorFileWriter>> NewPtFileWriter(std::string_view name, TensorDescription description,
                                                                  ByteSink sink) {
  absl::StatusOr<std::string> pickle = WriteTensorPickle(description);
  if (!pickle.ok()) return pickle.status();
  absl::StatusOr<uint64_t> size = ContentSize(description);
  if (!size.ok()) return size.status();
  std::string folder(name.substr(0, kMaxName));
  std::replace(folder.begin(), folder.end(), '/', '_');
  if (folder.empty()) folder = "archive";
  auto writer = std::make_unique<PtFileWriter>(std::move(folder), std::move(description), std::move(sink));
  if (absl::Status status = writer->Start(*pickle, *size); !status.ok()) return status;
  return writer;
}

absl::StatusOr<PtFile> PtFile::Open(ByteSource& source) {
  absl::StatusOr<ZipReader> zip = ZipReader::Open(source);
  if (!zip.ok()) return zip.status();
  constexpr std::string_view kPickle = "/data.pkl";
  const ZipEntry* pickle_entry = nullptr;
  for (const ZipEntry& entry : zip->entries()) {
    if (std::string_view(entry.name).ends_with(kPickle)) pickle_entry = &entry;
  }
  if (pickle_entry == nullptr) return absl::InvalidArgumentError("a zip without data.pkl is no file of torch.save");
  const std::string folder = pickle_entry->name.substr(0, pickle_entry->name.size() - kPickle.size() + 1);
  absl::StatusOr<std::string> pickle = zip->ReadWhole(*pickle_entry, kMaxSmallEntry);
  if (!pickle.ok()) return pickle.status();
  absl::StatusOr<PickledTensor> tensor = ReadTensorPickle(*pickle);
  if (!tensor.ok()) return tensor.status();
  if (absl::Status status = AtByteOrder(*zip, folder, tensor->layout); !status.ok()) return status;
  const ZipEntry* storage = zip->Find(Cat(folder, "data/", tensor->storage_key));
  if (storage == nullptr) return absl::InvalidArgumentError("the tensor's storage is not in the file");
  if (absl::Status status = CheckLayout(tensor->layout, storage->size); !status.ok()) return status;
  ZipEntry storage_copy = *storage;
  return PtFile(*std::move(zip), *std::move(tensor), std::move(storage_copy));
}

absl::Status PtFile::Read(ContentVisitor visit) {
  absl::StatusOr<uint64_t> size = ContentSize(description());
  if (!size.ok()) return size.status();
  if (*size == 0) return absl::OkStatus();
  if (!IsPlain(tensor_.layout)) {
    absl::StatusOr<std::string> storage = zip_.ReadWhole(storage_, kMaxGatheredStorage);
    if (!storage.ok()) return storage.status();
    return VisitStrided(tensor_.layout, *storage, visit);
  }
  uint64_t skip = tensor_.layout.offset * DTypeSize(description().dtype);
  uint64_t remaining = *size;
  return zip_.Read(storage_, [&](std::string_view chunk) {
    const uint64_t skipped = std::min<uint64_t>(skip, chunk.size());
    skip -= skipped;
    chunk = chunk.substr(skipped, remaining);
    remaining -= chunk.size();
    return chunk.empty() ? absl::OkStatus() : visit(chunk);
  });
}

}  // namespace msprobe::server
