#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "server/analysis/compare/element_load.h"
#include "server/analysis/tensor/element_pairs.h"
#include "server/analysis/tensor/tensor_text.h"
#include "server/exporter/file_sink.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/tensor_file/npy_file.h"
#include "server/format/tensor_file/pt_file.h"
#include "server/format/tensors/file_tensor.h"
#include "server/format/tensors/safetensors_writer.h"
#include "server/query/compared_rows.h"
#include "server/query/exact_number.h"
#include "server/query/preview_message.h"
#include "server/query/tensors_service.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kMaxTop = 1000;

absl::Status MayRead(const AnalysisContext& context, const std::string& path) {
  if (context.paths_allowed) return absl::OkStatus();
  return absl::FailedPreconditionError(
      Cat("path ", path, ": this server reads no files; let the client start a server of its own"));
}

class FileElements : public TensorElements {
 public:
  FileElements(const FileTensor& tensor, const std::function<bool()>& cancelled)
      : tensor_(tensor), cancelled_(cancelled) {}

  const TensorDescription& description() const override { return tensor_.description; }
  absl::Status Read(ContentVisitor visit) override {
    return tensor_.read([&](std::string_view chunk) {
      return cancelled_() ? absl::CancelledError("the client is gone") : visit(chunk);
    });
  }

 private:
  const FileTensor& tensor_;
  const std::function<bool()>& cancelled_;
};

// Sizes alone: the same elements in another shape.
absl::StatusOr<FileTensor> InShape(FileTensor tensor, const v1::TensorPlace& place) {
  if (place.sizes().empty()) return tensor;
  TensorDescription shaped = tensor.description;
  shaped.shape.assign(place.sizes().begin(), place.sizes().end());
  auto wanted = ContentSize(shaped), there = ContentSize(tensor.description);
  if (!wanted.ok()) return wanted.status();
  if (!there.ok()) return there.status();
  if (*wanted != *there) {
    const size_t element = DTypeSize(shaped.dtype);
    return absl::InvalidArgumentError(
        Cat(place.path(), " has ", *there / element, " elements; the shape needs ", *wanted / element));
  }
  tensor.description = std::move(shaped);
  return tensor;
}

absl::StatusOr<FileTensor> InLayout(const FileTensor& tensor, const v1::TensorPlace& place) {
  FileTensor stored = tensor;
  if (!place.from().empty()) {
    auto from = FormatNamed(place.from());
    if (!from.ok()) return from.status();
    stored.layout = *from;
  }
  if (place.to().empty()) return InShape(stored, place);
  auto to = FormatNamed(place.to());
  if (!to.ok()) return to.status();
  if (*to == stored.layout) return stored;
  auto made = Rearranged(stored, {.from = stored.layout,
                                  .to = *to,
                                  .stored_shape = {},
                                  .sizes = {place.sizes().begin(), place.sizes().end()},
                                  .block = place.block()});
  if (!made.ok()) return absl::Status(made.status().code(), Cat(place.path(), ": ", StdView(made.status().message())));
  return made;
}

absl::StatusOr<FileTensor> Find(const AnalysisContext& context, const v1::TensorPlace& place) {
  if (absl::Status status = MayRead(context, place.path()); !status.ok()) return status;
  auto file = OpenTensorFile(place.path());
  if (!file.ok()) return file.status();
  auto tensor = FindTensor(*file, place.path(), place.name());
  if (!tensor.ok()) return tensor.status();
  return InLayout(*tensor, place);
}

void FillSide(const FileTensor& tensor, v1::TensorDiff::Side& out) {
  out.set_dtype(std::string(TorchDTypeName(tensor.description.dtype)));
  out.mutable_shape()->Add(tensor.description.shape.begin(), tensor.description.shape.end());
  out.set_layout(tensor.layout);
}

void FillElements(const std::vector<ElementPair>& pairs, const std::vector<int64_t>& shape,
                  google::protobuf::RepeatedPtrField<v1::TensorDiff::Element>& out) {
  for (const ElementPair& pair : pairs) {
    v1::TensorDiff::Element& element = *out.Add();
    for (int64_t at : IndexOf(pair.index, shape)) element.add_index(at);
    element.set_target(pair.target.number());
    element.set_golden(pair.golden.number());
    if (auto exact = ExactNumber(pair.target)) *element.mutable_exact_target() = *exact;
    if (auto exact = ExactNumber(pair.golden)) *element.mutable_exact_golden() = *exact;
  }
}

v1::TensorDiff::Kind KindOf(const ElementwiseMetrics& metrics) {
  if (metrics.same_bits) return v1::TensorDiff::EQUAL;
  const NonFiniteElements& odd = metrics.non_finite;
  if (odd.nan + odd.inf + odd.inf_sign != 0) return v1::TensorDiff::NOT_FINITE;
  return metrics.over_tolerance == 0 ? v1::TensorDiff::CLOSE : v1::TensorDiff::DIFFERS;
}

}  // namespace

absl::Status ListTensors(const AnalysisContext& context, const v1::ListTensorsRequest& request,
                         v1::TensorsInFile& response) {
  if (absl::Status status = MayRead(context, request.path()); !status.ok()) return status;
  auto file = OpenTensorFile(request.path());
  if (!file.ok()) return file.status();
  response.set_kind(file->kind);
  for (const FileTensor& tensor : file->tensors) {
    v1::TensorsInFile::Tensor& out = *response.add_tensors();
    out.set_name(tensor.name);
    out.set_dtype(tensor.description.dtype);
    out.mutable_shape()->Add(tensor.description.shape.begin(), tensor.description.shape.end());
    out.set_layout(tensor.layout);
    out.mutable_sizes()->Add(tensor.sizes.begin(), tensor.sizes.end());
  }
  for (const std::string& note : file->notes) response.add_notes(note);
  return absl::OkStatus();
}

absl::Status SummarizeTensor(const AnalysisContext& context, const v1::SummarizeTensorRequest& request,
                             const std::function<bool()>& cancelled, v1::TensorPreview& response) {
  auto options = AskedPreview(request.bins(), request.top());
  if (!options.ok()) return options.status();
  auto tensor = Find(context, request.place());
  if (!tensor.ok()) return tensor.status();
  const auto open = [&]() -> absl::StatusOr<std::unique_ptr<TensorElements>> {
    return std::make_unique<FileElements>(*tensor, cancelled);
  };
  auto preview = PreviewOf(open, *options);
  if (!preview.ok()) return preview.status();
  response.set_dtype(std::string(TorchDTypeName(tensor->description.dtype)));
  FillPreview(*preview, tensor->description.shape, response);
  return absl::OkStatus();
}

absl::Status DiffTensors(const AnalysisContext& context, const v1::DiffTensorsRequest& request,
                         const std::function<bool()>& cancelled, v1::TensorDiff& response) {
  if (request.top() > kMaxTop) {
    return absl::InvalidArgumentError(Cat("top ", request.top(), " is not allowed: at most ", kMaxTop));
  }
  auto target = Find(context, request.target());
  if (!target.ok()) return target.status();
  auto golden = Find(context, request.golden());
  if (!golden.ok()) return golden.status();
  FillSide(*target, *response.mutable_target());
  FillSide(*golden, *response.mutable_golden());
  Tolerances tolerances;
  tolerances.Override(request.has_rtol() ? std::optional(request.rtol()) : std::nullopt,
                      request.has_atol() ? std::optional(request.atol()) : std::nullopt);
  const Tolerance tolerance = tolerances.Of(response.target().dtype(), response.golden().dtype());
  response.set_rtol(tolerance.relative);
  response.set_atol(tolerance.absolute);
  if (target->description.shape != golden->description.shape) {
    response.set_kind(v1::TensorDiff::SHAPE);
    return absl::OkStatus();
  }
  FileElements ours(*target, cancelled), theirs(*golden, cancelled);
  ElementPicker picker(target->description, golden->description, tolerance, request.top());
  const auto pick = [&](const char* a, const char* b, size_t count) { picker.Add(a, b, count); };
  const bool comparable = IsComplex(target->description.dtype) == IsComplex(golden->description.dtype);
  auto metrics = CompareElements(ours, theirs, tolerance, comparable && request.top() != 0 ? pick : ElementsVisitor());
  if (!metrics.ok()) return metrics.status();
  response.set_kind(KindOf(*metrics));
  FillElementMetrics(*metrics, *response.mutable_metrics());
  const ElementPairs pairs = picker.Take();
  FillElements(pairs.worst, target->description.shape, *response.mutable_worst());
  FillElements(pairs.over, target->description.shape, *response.mutable_over());
  FillElements(pairs.first, target->description.shape, *response.mutable_first());
  return absl::OkStatus();
}

absl::Status ConvertTensors(const AnalysisContext& context, const v1::ConvertTensorsRequest& request,
                            const Send<v1::FileChunk>& send) {
  const v1::TensorPlace& place = request.place();
  ChunkSink sink(
      "", [&](const v1::FileChunk& chunk) { return send(chunk); }, 1);
  ByteSink to_peer = [&](std::string_view bytes) { return sink.Write(bytes); };
  const std::string stem = std::filesystem::path(place.path()).stem().string();
  if (request.format() == v1::ConvertTensorsRequest::SAFETENSORS) {
    if (absl::Status status = MayRead(context, place.path()); !status.ok()) return status;
    auto file = OpenTensorFile(place.path());
    if (!file.ok()) return file.status();
    std::vector<FileTensor> tensors;
    for (const FileTensor& each : file->tensors) {
      if (!place.name().empty() && each.name != place.name()) continue;
      auto made = InLayout(each, place);
      if (!made.ok()) return made.status();
      tensors.push_back(*std::move(made));
    }
    if (tensors.empty()) return FindTensor(*file, place.path(), place.name()).status();
    if (absl::Status status = sink.Begin(Cat(stem, ".safetensors")); !status.ok()) return status;
    if (absl::Status status = WriteSafetensors(tensors, to_peer); !status.ok()) return status;
    return sink.End();
  }
  auto tensor = Find(context, place);
  if (!tensor.ok()) return tensor.status();
  if (absl::Status status = sink.Begin(stem); !status.ok()) return status;
  const TensorDescription& description = tensor->description;
  auto writer = request.format() == v1::ConvertTensorsRequest::NPY ? NewNpyFileWriter(description, std::move(to_peer))
                : request.format() == v1::ConvertTensorsRequest::PT
                    ? NewPtFileWriter(stem, description, std::move(to_peer))
                    : NewTensorTextWriter(description, std::move(to_peer));
  if (!writer.ok()) return writer.status();
  absl::Status status = tensor->read([&](std::string_view chunk) { return (*writer)->Append(chunk); });
  if (status.ok()) status = (*writer)->Finish();
  if (status.ok()) status = sink.End();
  return status;
}

}  // namespace msprobe::server
