#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kMaxHeatRows = 1000;

static_assert(std::endian::native == std::endian::little, "columns go to the browser as little-endian bytes");

template <typename T>
std::string Base64(const std::vector<T>& values) {
  return absl::Base64Escape(absl::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
}

void WriteSpans(JsonWriter& json, const char* name, const std::vector<LayerMap::Span>& spans) {
  WriteSpans(json, name, spans.size(), [&](size_t i) { return std::pair(spans[i].first, spans[i].last); });
}

void WriteTexts(JsonWriter& json, const char* name, const std::vector<std::string>& texts) {
  json.Name(name);
  json.StartArray();
  for (const std::string& text : texts) json.Text(text);
  json.EndArray();
}

absl::StatusOr<LayerMapRequest> RequestOf(const WebQuery& query) {
  LayerMapRequest request;
  auto run = query.Required("run");
  if (!run.ok()) return run.status();
  if (!query.Text("rank").empty()) {
    auto rank = query.Rank();
    if (!rank.ok()) return rank.status();
    request.rank = *rank;
  }
  auto statistic = query.Statistic();
  if (!statistic.ok()) return statistic.status();
  auto tensors = query.Required("tensors");
  if (!tensors.ok()) return tensors.status();
  request.run = *run;
  request.golden = query.Text("golden");
  request.statistic = static_cast<Statistic>(*statistic);
  request.tensors = *tensors;
  uint32_t columns = 600, rows = 400;
  for (const auto& [name, out] : {std::pair("first", &request.first_step),
                                  {"last", &request.last_step},
                                  {"first_layer", &request.first_layer},
                                  {"last_layer", &request.last_layer},
                                  {"columns", &columns},
                                  {"rows", &rows}}) {
    auto number = query.Number(name, *out);
    if (!number.ok()) return number.status();
    *out = *number;
  }
  request.max_columns = std::clamp(columns, 1u, kMaxColumns);
  request.max_rows = std::clamp(rows, 1u, kMaxHeatRows);
  return request;
}

}  // namespace

// LayerMap as {"layers", "columns": [[first step, last], ...], "rows": [[first layer, last], ...], "tensors": [[name,
// record], ...], "tensors_read", "values", "steps_of", "tensors_of", "layers_of", "steps", "steps_read"}. "values" and
// the three after it have the cells row by row, as base64 of float32 and of uint32. A cell whose tensor is 4294967295
// is empty. Without a rank, a layer is a rank.
absl::Status AnswerHeatMap(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto request = RequestOf(query);
  if (!request.ok()) return request.status();
  auto map = MapLayers(context.analysis, *request, context.cancelled, context.tell);
  if (!map.ok()) return map.status();
  std::vector<float> values;
  std::vector<uint32_t> steps, tensors, layers;
  std::vector<const LayerMap::Tensor*> shown;  // a cell shows one of many tensors, so most are not
  absl::flat_hash_map<uint32_t, uint32_t> numbers;
  for (const LayerMap::Cell& cell : map->cells) {
    values.push_back(cell.value);
    steps.push_back(cell.step);
    layers.push_back(cell.layer);
    if (!cell.known) {
      tensors.push_back(UINT32_MAX);
      continue;
    }
    const auto [found, fresh] = numbers.try_emplace(cell.tensor, static_cast<uint32_t>(shown.size()));
    if (fresh) shown.push_back(&map->tensors[cell.tensor]);
    tensors.push_back(found->second);
  }
  json.StartObject();
  WriteTexts(json, "layers", map->layers);
  json.Name("tensors");
  json.StartArray();
  for (const LayerMap::Tensor* const tensor : shown) {
    json.StartArray();
    json.Text(tensor->name);
    json.Text(tensor->record);
    json.EndArray();
  }
  json.EndArray();
  json.Name("tensors_read");
  json.Uint64(map->tensors.size());
  WriteSpans(json, "columns", map->columns);
  WriteSpans(json, "rows", map->rows);
  json.Name("values");
  json.Text(Base64(values));
  json.Name("steps_of");
  json.Text(Base64(steps));
  json.Name("tensors_of");
  json.Text(Base64(tensors));
  json.Name("layers_of");
  json.Text(Base64(layers));
  json.Name("steps");
  json.Uint64(map->steps);
  json.Name("steps_read");
  json.Uint64(map->steps_read);
  json.EndObject();
  return absl::OkStatus();
}

}  // namespace msprobe::server
