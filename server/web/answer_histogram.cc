#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kDefaultBins = 48;

}  // namespace

// How the finite elements of one captured tensor are spread: {"dtype", "elements", "finite", "nan", "positive_inf",
// "negative_inf", "zero", "edges": [...], "counts": [...]}, where "edges" has one more than "counts". NotFound: its
// content was not captured.
absl::Status AnswerHistogram(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  auto rank = query.Rank();
  auto tensor = query.Required("tensor");
  auto required = query.Required("step");
  auto step = query.Number("step", 0);
  auto bins = query.Number("bins", kDefaultBins);
  for (const absl::Status& status :
       {run.status(), rank.status(), tensor.status(), required.status(), step.status(), bins.status()}) {
    if (!status.ok()) return status;
  }
  v1::PreviewTensorRequest request;
  request.mutable_source()->set_run(*run);
  request.set_step(*step);
  *request.mutable_rank() = *rank;
  request.set_name(*tensor);
  request.set_bins(*bins);
  v1::TensorPreview preview;
  if (absl::Status status = PreviewTensor(context.analysis, request, preview); !status.ok()) return status;
  json.StartObject();
  json.Name("dtype");
  json.Text(preview.dtype());
  for (const auto& [name, count] : {std::pair<const char*, uint64_t>{"elements", preview.elements()},
                                    {"finite", preview.finite()},
                                    {"nan", preview.nan_count()},
                                    {"positive_inf", preview.positive_inf_count()},
                                    {"negative_inf", preview.negative_inf_count()},
                                    {"zero", preview.zero_count()}}) {
    json.Name(name);
    json.Uint64(count);
  }
  json.Name("edges");
  json.StartArray();
  for (const double edge : preview.bin_edges()) WriteNumber(json, edge);
  json.EndArray();
  json.Name("counts");
  json.StartArray();
  for (const uint64_t count : preview.bin_counts()) json.Uint64(count);
  json.EndArray();
  json.EndObject();
  return absl::OkStatus();
}

}  // namespace msprobe::server
