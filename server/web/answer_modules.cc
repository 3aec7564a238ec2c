#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/divergence/finiteness.h"
#include "server/format/storage/key.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kMaxModules = 4000;

// The tensors of the operations that ran in one module, those of inner modules left out.
struct ModuleSum {
  std::string name;  // empty: outside of modules
  uint64_t tensors = 0, nan = 0, inf = 0;
  double largest = 0;  // of all magnitudes that are finite, of tensors that are no masks (HoldsMask)

  void Add(const v1::FoundTensor& tensor) {
    ++tensors;
    nan += tensor.nan_count() > 0;
    inf += tensor.inf_count() > 0;
    if (HoldsMask(tensor.dtype(), tensor.min(), tensor.max())) return;
    for (const double end : {tensor.max(), tensor.min()}) {
      if (std::isfinite(end)) largest = std::max(largest, std::abs(end));
    }
  }
};

}  // namespace

// The modules of one step of one rank, in the order in which they ran: {"modules": [{"name", "tensors", "nan", "inf",
// "largest"}, ...], "others"}. "nan" and "inf" count tensors that hold any. "others" counts modules after the first
// `limit`, at most kMaxModules.
absl::Status AnswerModules(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  auto rank = query.Rank();
  auto required = query.Required("step");
  auto step = query.Number("step", 0);
  auto limit = query.Number("limit", kMaxModules);
  for (const absl::Status& status : {run.status(), rank.status(), required.status(), step.status(), limit.status()}) {
    if (!status.ok()) return status;
  }
  v1::FindRequest request;
  request.mutable_source()->set_run(*run);
  v1::Scope::Steps& steps = *request.mutable_scope()->add_steps();
  steps.set_first(*step);
  steps.set_last(*step);
  *request.mutable_scope()->add_ranks() = *rank;
  std::vector<ModuleSum> modules;
  absl::flat_hash_map<std::string, size_t> places;
  const size_t most = std::min(*limit, kMaxModules);
  size_t others = 0;
  absl::Status status = Find(context.analysis, request, context.cancelled, [&](const v1::FindResponse& response) {
    for (const v1::FoundTensor& tensor : response.found().tensors()) {
      const auto [found, fresh] = places.try_emplace(tensor.module(), modules.size());
      if (fresh && modules.size() < most) {
        modules.emplace_back().name = tensor.module();
      } else if (fresh) {
        found->second = SIZE_MAX;
        ++others;
      }
      if (found->second != SIZE_MAX) modules[found->second].Add(tensor);
    }
    return true;
  });
  if (!status.ok()) return status;
  json.StartObject();
  json.Name("modules");
  json.StartArray();
  for (const ModuleSum& module : modules) {
    json.StartObject();
    json.Name("name");
    json.Text(module.name);
    for (const auto& [name, count] :
         {std::pair("tensors", module.tensors), std::pair("nan", module.nan), {"inf", module.inf}}) {
      json.Name(name);
      json.Uint64(count);
    }
    json.Name("largest");
    json.Double(module.largest);
    json.EndObject();
  }
  json.EndArray();
  json.Name("others");
  json.Uint64(others);
  json.EndObject();
  return absl::OkStatus();
}

}  // namespace msprobe::server
