#include "server/format/tensors/file_tensor.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_join.h"
#include "server/format/cat.h"
#include "server/format/checkpoint/checkpoint.h"
#include "server/format/dtype_name.h"
#include "server/format/json/json_cursor.h"
#include "server/format/tensor_file/byte_source.h"
#include "server/format/tensor_file/npy_file.h"
#include "server/format/tensor_file/pt_file.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kChunk = 1 << 20;
constexpr size_t kNamesShown = 8;

absl::Status Named(const std::string& path, const absl::Status& status) {
  const std::string_view message = StdView(status.message());
  return message.find(path) != std::string_view::npos ? status : absl::Status(status.code(), Cat(path, ": ", message));
}

absl::Status ReadPlaced(const LogicalTensor& tensor, bool big_endian, ContentVisitor visit) {
  const size_t element = DTypeSize(tensor.dtype);
  const size_t part = IsComplex(tensor.dtype) ? element / 2 : element;
  const uint64_t elements = tensor.elements();
  const uint64_t step = kChunk / element;
  LogicalReader reader(tensor);
  std::string buffer(std::min(step, elements) * element, '\0');
  for (uint64_t done = 0; done < elements; done += step) {
    const uint64_t count = std::min(step, elements - done);
    if (absl::Status status = reader.Read(buffer.data(), count); !status.ok()) return status;
    const std::span<char> bytes(buffer.data(), count * element);
    for (size_t at = 0; big_endian && at < bytes.size(); at += part) {
      std::reverse(bytes.data() + at, bytes.data() + at + part);
    }
    if (absl::Status status = visit({bytes.data(), bytes.size()}); !status.ok()) return status;
  }
  return absl::OkStatus();
}

bool IsRowMajor(const LogicalTensor& tensor) {
  return tensor.pieces.size() == 1 &&
         tensor.pieces[0].strides == PlainTensor(tensor.dtype, tensor.shape, "", 0).pieces[0].strides;
}

absl::StatusOr<TensorsInFile> OpenNpy(const std::string& path) {
  auto source = FileBytes::Open(path);
  if (!source.ok()) return source.status();
  auto file = NpyFile::Open(**source);
  if (!file.ok()) return file.status();
  const StridedLayout& layout = file->layout();
  LogicalTensor tensor = PlainTensor(layout.description.dtype, layout.description.shape, path, file->content_offset());
  const auto element = static_cast<int64_t>(DTypeSize(tensor.dtype));
  for (size_t i = 0; i < layout.strides.size(); ++i) tensor.pieces[0].strides[i] = layout.strides[i] * element;
  TensorsInFile found{.kind = "npy", .tensors = {}, .notes = {}};
  found.tensors.push_back(PlacedTensor("", std::move(tensor), layout.big_endian));
  return found;
}

absl::StatusOr<TensorsInFile> OfCheckpoint(std::string_view kind, absl::StatusOr<Checkpoint> opened) {
  if (!opened.ok()) return opened.status();
  TensorsInFile found{.kind = std::string(kind), .tensors = {}, .notes = std::move(opened->notes)};
  for (auto& [name, tensor] : opened->tensors) {
    if (!IsUtf8(name)) return absl::InvalidArgumentError("the name of a tensor is no UTF-8");
    if (absl::Status status = CheckTensor(tensor); !status.ok()) {
      return absl::InvalidArgumentError(Cat("tensor ", name, ": ", StdView(status.message())));
    }
    found.tensors.push_back(PlacedTensor(name, std::move(tensor)));
  }
  return found;
}

// One tensor that is more than its storage: quantized, conjugated or negated.
absl::StatusOr<TensorsInFile> OpenSingle(const std::string& path) {
  auto source = FileBytes::Open(path);
  if (!source.ok()) return source.status();
  auto file = PtFile::Open(**source);
  if (!file.ok()) return file.status();
  TensorsInFile found{.kind = "pt", .tensors = {}, .notes = {}};
  found.tensors.push_back({.name = "", .description = file->description()});
  found.tensors.back().read = [path](ContentVisitor visit) {
    auto again = FileBytes::Open(path);
    if (!again.ok()) return again.status();
    auto opened = PtFile::Open(**again);
    return opened.ok() ? opened->Read(visit) : opened.status();
  };
  return found;
}

absl::StatusOr<TensorsInFile> OpenPt(const std::string& path) {
  auto found = OfCheckpoint("pt", OpenTorchFiles(path, {.optimizer = true}));
  if (found.ok() && !found->tensors.empty()) return found;
  auto single = OpenSingle(path);
  if (single.ok()) return single;
  return found.ok() ? absl::StatusOr<TensorsInFile>(single.status()) : found;
}

absl::StatusOr<TensorsInFile> OpenSafetensorsFile(const std::string& path) {
  return OfCheckpoint("safetensors", OpenSafetensors(path, {}));
}

struct Form {
  bool (*is)(std::string_view start);
  absl::StatusOr<TensorsInFile> (*open)(const std::string& path);
};
constexpr size_t kStart = 16;
// A kernel dump begins with a number, whose last byte is 0, and so comes last.
constexpr Form kForms[] = {
    {[](std::string_view start) { return start.starts_with("\x93NUMPY"); }, OpenNpy},
    {[](std::string_view start) { return start.starts_with("PK\x03\x04"); }, OpenPt},
    {[](std::string_view start) { return start.starts_with('$') && start.find('\0') == std::string_view::npos; },
     OpenAtbTensor},
    {[](std::string_view start) { return start.size() > 8 && start[8] == '{'; }, OpenSafetensorsFile},
    {[](std::string_view start) { return start.size() > 8 && start[7] == '\0'; }, OpenKernelDump}};

}  // namespace

absl::StatusOr<TensorsInFile> OpenTensorFile(const std::string& path) {
  std::error_code error;
  const fs::path resolved = fs::canonical(path, error);
  if (error) return absl::NotFoundError(Cat(path, ": ", error.message()));
  auto source = FileBytes::Open(resolved.string());
  if (!source.ok()) return source.status();
  std::string start(std::min<uint64_t>(kStart, (*source)->size()), '\0');
  if (absl::Status status = (*source)->ReadAt(0, {start.data(), start.size()}); !status.ok()) return status;
  const bool pickle = start.size() > 1 && start[0] == '\x80' && start[1] >= 2 && start[1] <= 5;  // its protocols
  for (const Form& form : kForms) {
    if (!form.is(start)) continue;
    auto found = form.open(resolved.string());
    if (!found.ok() && form.open == OpenKernelDump && pickle) break;
    if (!found.ok()) return Named(path, found.status());
    if (found->tensors.empty()) {
      return absl::InvalidArgumentError(
          Cat(path, " holds no tensor", found->notes.empty() ? "" : Cat(": ", *found->notes.begin())));
    }
    return found;
  }
  return absl::InvalidArgumentError(Cat(
      path, pickle ? " is a bare pickle, which is not executed; save it again with torch.save or numpy.save"
                   : " is no tensor file: .npy, torch.save's zip, safetensors, ATB's .bin and kernel dumps are read"));
}

absl::StatusOr<FileTensor> FindTensor(const TensorsInFile& file, const std::string& path, const std::string& name) {
  if (name.empty() && file.tensors.size() == 1) return file.tensors.front();
  std::vector<std::string> names;
  for (const FileTensor& tensor : file.tensors) {
    if (tensor.name == name && !name.empty()) return tensor;
    if (names.size() < kNamesShown) names.push_back(tensor.name);
  }
  const std::string there = Cat(absl::StrJoin(names, ", "), file.tensors.size() > names.size() ? ", ..." : "");
  if (!name.empty() && there.empty()) {
    return absl::NotFoundError(Cat(path, " is one tensor, which has no name; leave out ", name));
  }
  if (!name.empty()) return absl::NotFoundError(Cat(path, " has no tensor ", name, "; it has ", there));
  return absl::FailedPreconditionError(Cat(path, " has ", file.tensors.size(), " tensors; name one of: ", there));
}

FileTensor PlacedTensor(std::string name, LogicalTensor tensor, bool big_endian) {
  FileTensor made{.name = std::move(name), .description = {}};
  made.description.dtype = tensor.dtype;
  made.description.shape = tensor.shape;
  if (!big_endian && IsRowMajor(tensor)) {
    made.path = tensor.pieces[0].path;
    made.offset = tensor.pieces[0].offset;
  }
  made.read = [tensor = std::move(tensor), big_endian](ContentVisitor visit) {
    return ReadPlaced(tensor, big_endian, visit);
  };
  return made;
}

absl::StatusOr<FileTensor> Rearranged(const FileTensor& tensor, RearrangementRequest request) {
  if (tensor.path.empty()) {
    return absl::FailedPreconditionError(
        Cat("a tensor that is not row-major in its file, or not in this machine's byte order, keeps its layout; ",
            "convert it to .npy first"));
  }
  request.stored_shape = tensor.description.shape;
  request.element_size = DTypeSize(tensor.description.dtype);
  if (request.sizes.empty()) request.sizes = tensor.sizes;
  auto plan = PlanRearrangement(request);
  if (!plan.ok()) return plan.status();
  FileTensor made = tensor;
  made.description.shape = plan->to.shape;
  if (auto size = ContentSize(made.description); !size.ok()) return size.status();
  made.layout = *FormatNamed(request.to);
  made.sizes.clear();
  made.path.clear();
  made.read = [plan = *std::move(plan), path = tensor.path, offset = tensor.offset,
               size = request.element_size](ContentVisitor visit) {
    auto source = FileBytes::Open(path);
    return source.ok() ? ReadRearranged(plan, **source, offset, size, visit) : source.status();
  };
  return made;
}

}  // namespace msprobe::server
