#include <string>
#include <utility>

#include "server/analysis/compare/comparison.h"
#include "server/analysis/compare/in_order.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/analysis/tensor/tensor_filter.h"
#include "server/format/cat.h"
#include "server/query/analysis_context.h"
#include "server/query/analysis_request.h"
#include "server/query/exact_number.h"
#include "server/query/opened_source.h"

namespace msprobe::server {
namespace {

constexpr int kTensorsAMessage = 500;

TensorQuestion QuestionOf(const v1::FindRequest& request) {
  TensorQuestion question;
  question.name_glob = request.scope().name_glob();
  question.name_regex = request.name_regex();
  question.dtypes.assign(request.dtypes().begin(), request.dtypes().end());
  question.shape = request.shape();
  for (const v1::StatisticPredicate& predicate : request.predicates()) {
    question.predicates.push_back({static_cast<Statistic>(predicate.statistic()),
                                   static_cast<Relation>(predicate.comparison()), predicate.value()});
  }
  question.module = request.module();
  question.stack_text = request.stack_text();
  return question;
}

v1::FoundTensor Message(const StepTable& table, const Entry& entry, const Row& row, const StepTables::Place& place) {
  v1::FoundTensor found;
  found.set_name(std::string(row.name));
  found.set_op(std::string(entry.name));
  found.set_module(std::string(ModuleOf(entry)));
  found.set_parent(std::string(entry.parent));
  found.set_step(place.first);
  *found.mutable_rank() = RankOfPlace(place);
  found.set_token(entry.token);
  found.set_dtype(std::string(table.text(row.dtype)));
  found.set_shape(std::string(table.text(row.shape)));
  const auto of = [&](Statistic statistic) { return StatisticOf(table, row, statistic); };
  if (const auto value = of(Statistic::kMax)) found.set_max(*value);
  if (const auto value = of(Statistic::kMin)) found.set_min(*value);
  if (auto exact = ExactNumber(row.statistics[0])) *found.mutable_exact_max() = *exact;
  if (auto exact = ExactNumber(row.statistics[1])) *found.mutable_exact_min() = *exact;
  if (const auto value = of(Statistic::kMean)) found.set_mean(*value);
  if (const auto value = of(Statistic::kNorm)) found.set_norm(*value);
  if (const auto value = of(Statistic::kVariance)) found.set_variance(*value);
  if (const auto value = of(Statistic::kNan)) found.set_nan_count(static_cast<uint64_t>(*value));
  if (const auto value = of(Statistic::kInf)) found.set_inf_count(static_cast<uint64_t>(*value));
  if (const auto value = of(Statistic::kZero)) found.set_zero_count(static_cast<uint64_t>(*value));
  found.set_checksum(std::string(row.checksum));
  found.set_has_content(!row.data_name.empty());
  return found;
}

}  // namespace

absl::Status Find(const AnalysisContext& context, const v1::FindRequest& request,
                  const std::function<bool()>& cancelled, const Send<v1::FindResponse>& send) {
  auto filter = TensorFilter::Make(QuestionOf(request));
  if (!filter.ok()) return filter.status();
  auto source = OpenedSource::Open(request.source(), context);
  if (!source.ok()) return source.status();
  auto places = PlacesIn(*source, ScopeOf(request.scope()));
  if (!places.ok()) return places.status();
  const uint64_t limit = request.limit() == 0 ? UINT64_MAX : request.limit();
  const auto search = [&](size_t index) -> absl::StatusOr<v1::FoundTensors> {
    if (cancelled()) return PeerGone();
    const StepTables::Place& place = (*places)[index];
    auto step = source->Read(place, {.stacks = !request.stack_text().empty(), .construct = true});
    if (!step.ok()) return step.status();
    const StepTable& table = (*step)->table();
    v1::FoundTensors found;
    for (const Entry& entry : table.entries) {
      if (!filter->Takes(table, entry)) continue;
      for (uint32_t i = entry.first_row; i < entry.first_row + entry.rows; ++i) {
        // One more than may be sent: that there is more is said.
        if (static_cast<uint64_t>(found.tensors_size()) > limit) return found;
        const Row& row = table.rows[i];
        if (filter->Takes(table, entry, row)) *found.add_tensors() = Message(table, entry, row, place);
      }
    }
    return found;
  };
  uint64_t sent = 0;
  const auto take = [&](size_t index, v1::FoundTensors found) -> absl::StatusOr<bool> {
    v1::FindResponse response;
    for (v1::FoundTensor& tensor : *found.mutable_tensors()) {
      if (sent == limit) {
        response.set_truncated(true);
        break;
      }
      ++sent;
      *response.mutable_found()->add_tensors() = std::move(tensor);
      if (response.found().tensors_size() < kTensorsAMessage) continue;
      if (!send(response)) return PeerGone();
      response.Clear();
    }
    if (response.has_found() || response.truncated()) {
      if (!send(response)) return PeerGone();
    }
    if (response.truncated()) return false;
    response.Clear();
    response.mutable_progress()->set_steps_done(index + 1);
    response.mutable_progress()->set_steps_total(places->size());
    if (!send(response)) return PeerGone();
    return true;
  };
  return InOrder<v1::FoundTensors>::Run(places->size(), context.threads, search, take);
}

}  // namespace msprobe::server
