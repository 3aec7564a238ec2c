#include <algorithm>
#include <string>

#include "server/analysis/tensor/tensor_preview.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/query/analysis_context.h"
#include "server/query/exact_number.h"
#include "server/query/opened_source.h"
#include "server/query/preview_message.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kMaxAsked = 1000;  // bins, elements at each end

void AddElement(const TensorPreview::Element& element, const std::vector<int64_t>& shape, v1::TensorElement& out) {
  for (int64_t at : IndexOf(element.index, shape)) out.add_index(at);
  out.set_value(element.value.number());
  if (auto exact = ExactNumber(element.value)) *out.mutable_exact() = *exact;
}

}  // namespace

std::vector<int64_t> IndexOf(uint64_t element, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    const auto size = static_cast<uint64_t>(std::max<int64_t>(shape[i], 1));
    index[i] = static_cast<int64_t>(element % size);
    element /= size;
  }
  return index;
}

absl::StatusOr<PreviewOptions> AskedPreview(uint32_t bins, uint32_t top) {
  for (const auto& [name, value] : {std::pair("bins", bins), std::pair("top", top)}) {
    if (value > kMaxAsked)
      return absl::InvalidArgumentError(Cat(name, " ", value, " is not allowed: at most ", kMaxAsked));
  }
  PreviewOptions options;
  if (bins != 0) options.bins = bins;
  if (top != 0) options.top = top;
  return options;
}

void FillPreview(const TensorPreview& preview, const std::vector<int64_t>& shape, v1::TensorPreview& out) {
  for (int64_t dim : shape) out.add_shape(dim);
  out.set_elements(preview.elements);
  out.set_finite(preview.finite);
  out.set_nan_count(preview.nan_count);
  out.set_positive_inf_count(preview.positive_inf_count);
  out.set_negative_inf_count(preview.negative_inf_count);
  out.set_zero_count(preview.zero_count);
  if (preview.finite != 0) {
    out.set_max(preview.max.number());
    out.set_min(preview.min.number());
    if (auto exact = ExactNumber(preview.max)) *out.mutable_exact_max() = *exact;
    if (auto exact = ExactNumber(preview.min)) *out.mutable_exact_min() = *exact;
    out.set_mean(preview.mean);
    out.set_norm(preview.norm);
    out.set_std(preview.std);
  }
  for (double edge : preview.bin_edges) out.add_bin_edges(edge);
  for (uint64_t count : preview.bin_counts) out.add_bin_counts(count);
  for (const auto& element : preview.largest) AddElement(element, shape, *out.add_largest());
  for (const auto& element : preview.smallest) AddElement(element, shape, *out.add_smallest());
  for (const auto& element : preview.first_non_finite) AddElement(element, shape, *out.add_first_non_finite());
}

absl::Status PreviewTensor(const AnalysisContext& context, const v1::PreviewTensorRequest& request,
                           v1::TensorPreview& response) {
  auto options = AskedPreview(request.bins(), request.top());
  if (!options.ok()) return options.status();
  auto source = OpenedSource::Open(request.source(), context);
  if (!source.ok()) return source.status();
  const PlaceScope scope{{{request.step(), request.step()}}, {{request.rank().kind(), request.rank().number()}}};
  auto places = PlacesIn(*source, scope);
  if (!places.ok()) return places.status();
  auto step = source->Read(places->front(), {.stacks = false, .construct = false});
  if (!step.ok()) return step.status();
  const StepTable& table = (*step)->table();
  const auto row = std::find_if(table.rows.begin(), table.rows.end(),
                                [&](const Row& each) { return each.is_tensor && each.name == request.name(); });
  if (row == table.rows.end()) {
    return absl::NotFoundError(Cat("step ", request.step(), " has no tensor \"", request.name(),
                                   "\"; names are those of files in dump_tensor_data without suffix, e.g. "
                                   "Functional.linear.0.forward.input.1"));
  }
  if (row->data_name.empty()) {
    return absl::NotFoundError(Cat("the content of \"", request.name(), "\" was not captured, only its numbers"));
  }
  auto opened = (*step)->OpenTensor(*row);
  if (!opened.ok()) return opened.status();
  const TensorDescription description = (*opened)->description();
  auto preview = PreviewOf([&] { return (*step)->OpenTensor(*row); }, *options);
  if (!preview.ok()) return preview.status();
  response.set_dtype(std::string(table.text(row->dtype)));
  FillPreview(*preview, description.shape, response);
  return absl::OkStatus();
}

}  // namespace msprobe::server
