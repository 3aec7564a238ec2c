#include <optional>
#include <utility>

#include "server/analysis/table/dump_reader.h"
#include "server/analysis/table/table_source.h"
#include "server/format/cat.h"
#include "server/format/dump/dump_text.h"
#include "server/format/tensor_file/byte_source.h"
#include "server/format/tensor_file/npy_file.h"
#include "server/format/tensor_file/pt_file.h"

namespace msprobe::server {
namespace {

class FileTensor : public TensorElements {
 public:
  static absl::StatusOr<std::unique_ptr<TensorElements>> Open(const std::string& path) {
    auto bytes = FileBytes::Open(path);
    if (!bytes.ok()) return bytes.status();
    auto tensor = std::unique_ptr<FileTensor>(new FileTensor(path, *std::move(bytes)));
    const auto named = [&path](const absl::Status& status) {
      return absl::Status(status.code(), Cat(path, ": ", StdView(status.message())));
    };
    if (path.ends_with(".npy")) {
      auto npy = NpyFile::Open(*tensor->bytes_);
      if (!npy.ok()) return named(npy.status());
      tensor->npy_ = *std::move(npy);
    } else {
      auto pt = PtFile::Open(*tensor->bytes_);
      if (!pt.ok()) return named(pt.status());
      tensor->pt_ = *std::move(pt);
    }
    return tensor;
  }

  const TensorDescription& description() const override { return npy_ ? npy_->description() : pt_->description(); }

  absl::Status Read(ContentVisitor visit) override {
    absl::Status status = npy_ ? npy_->Read(visit) : pt_->Read(visit);
    if (status.ok() || absl::IsCancelled(status)) return status;
    return absl::Status(status.code(), Cat(path_, ": ", StdView(status.message())));
  }

 private:
  FileTensor(std::string path, std::unique_ptr<FileBytes> bytes) : path_(std::move(path)), bytes_(std::move(bytes)) {}

  const std::string path_;
  const std::unique_ptr<FileBytes> bytes_;
  std::optional<NpyFile> npy_;
  std::optional<PtFile> pt_;
};

class DumpTable : public TableSource {
 public:
  explicit DumpTable(std::string tensors) : tensors_(std::move(tensors)) {}

  const StepTable& table() const override { return table_; }
  StepTable& mutable_table() override { return table_; }

  absl::StatusOr<std::unique_ptr<TensorElements>> OpenTensor(const Row& row) const override {
    if (row.data_name.find('/') != std::string_view::npos || row.data_name.starts_with("..")) {
      return absl::InvalidArgumentError(Cat("data_name \"", row.data_name, "\" is no name of a file"));
    }
    return FileTensor::Open(Cat(tensors_, "/", row.data_name));
  }

 private:
  const std::string tensors_;
  StepTable table_;
};

absl::StatusOr<DumpText> ReadText(const std::string& path) {
  auto source = FileBytes::Open(path);
  if (!source.ok()) return source.status();
  auto text = DumpText::Read(**source);
  if (!text.ok()) return absl::Status(text.status().code(), Cat(path, ": ", StdView(text.status().message())));
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableSource>> ReadDumpTable(const DumpFiles& files, const DumpReading& reading) {
  auto step = std::make_unique<DumpTable>(files.tensors);
  step->mutable_table().debug = files.dump.ends_with("debug.json");
  DumpReader builder(&step->mutable_table());
  const auto add = [&](const std::string& path, absl::Status (DumpReader::*into)(std::string_view)) {
    auto text = ReadText(path);
    if (!text.ok()) return text.status();
    absl::Status status = (builder.*into)(text->view());
    return status.ok() ? status : absl::Status(status.code(), Cat(path, ": ", StdView(status.message())));
  };
  if (absl::Status status = add(files.dump, &DumpReader::AddDump); !status.ok()) return status;
  if (reading.stacks && !files.stacks.empty()) {
    if (absl::Status status = add(files.stacks, &DumpReader::AddStacks); !status.ok()) return status;
  }
  if ((reading.construct || reading.calls) && !files.construct.empty()) {
    const auto into = reading.calls ? &DumpReader::AddCalls : &DumpReader::AddConstruct;
    if (absl::Status status = add(files.construct, into); !status.ok()) return status;
  }
  return step;
}

}  // namespace msprobe::server
