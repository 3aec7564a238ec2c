#include "server/analysis/overflow.h"

#include <fnmatch.h>

#include <optional>
#include <tuple>
#include <utility>

#include "server/analysis/comparison.h"
#include "server/query/analysis_context.h"
#include "server/query/step_sources.h"

namespace msprobe::server {
namespace {

v1::Overflow Message(const OverflowOrigin& origin, const StepTable& table, const AnalysisSource::Place& place) {
  const Entry& entry = table.entries[origin.entry];
  const Row& row = table.rows[origin.row];
  v1::Overflow message;
  message.set_op(std::string(entry.name));
  message.set_module(std::string(ModuleOf(entry)));
  message.set_step(place.first);
  *message.mutable_rank() = RankOfPlace(place);
  message.set_token(entry.token);
  message.set_origin(static_cast<v1::OverflowOrigin>(origin.origin));
  message.set_tensor(std::string(row.name));
  message.set_dtype(std::string(table.text(row.dtype)));
  message.set_shape(std::string(table.text(row.shape)));
  message.set_nan(origin.nan);
  message.set_infinity(origin.infinity);
  message.set_collectives_before(origin.collectives_before);
  if (entry.stack >= 0) {
    for (const std::string& line : table.stacks[static_cast<size_t>(entry.stack)]) message.add_stack(line);
  }
  return message;
}

}  // namespace

absl::Status Overflow(const AnalysisContext& context, const v1::OverflowRequest& request,
                      const std::function<bool()>& cancelled, const Send<v1::OverflowResponse>& send) {
  auto source = AnalysisSource::Open(request.source(), context);
  if (!source.ok()) return source.status();
  auto places = PlacesIn(*source, request.scope());
  if (!places.ok()) return places.status();
  v1::OverflowResponse response;
  std::optional<v1::Overflow> first;
  uint64_t done = 0;
  for (const AnalysisSource::Place& place : *places) {
    if (cancelled()) return PeerGone();
    auto step = source->Read(place, {.stacks = true, .construct = true});
    if (!step.ok()) return step.status();
    const StepTable& table = (*step)->table();
    uint32_t sent = 0;
    for (const OverflowOrigin& origin : FindOverflowOrigins(table)) {
      const std::string name(table.entries[origin.entry].name);
      const std::string& glob = request.scope().name_glob();
      if (!glob.empty() && fnmatch(glob.c_str(), name.c_str(), 0) != 0) continue;
      if (request.limit() != 0 && ++sent > request.limit()) break;
      *response.mutable_overflow() = Message(origin, table, place);
      const auto earliness = [](const v1::Overflow& found) {
        return std::tuple(found.step(), found.collectives_before());
      };
      if (!first || earliness(response.overflow()) < earliness(*first)) first = response.overflow();
      if (!send(response)) return PeerGone();
    }
    response.mutable_progress()->set_steps_done(++done);
    response.mutable_progress()->set_steps_total(places->size());
    if (!send(response)) return PeerGone();
  }
  if (!first) return absl::OkStatus();
  first->set_first(true);
  *response.mutable_overflow() = *std::move(first);
  return send(response) ? absl::OkStatus() : PeerGone();
}

}  // namespace msprobe::server
