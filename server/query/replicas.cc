#include "server/analysis/divergence/replicas.h"

#include <fnmatch.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/analysis/module_tree/module_name.h"
#include "server/query/analysis_context.h"
#include "server/query/analysis_request.h"
#include "server/query/opened_source.h"

namespace msprobe::server {
namespace {

v1::ReplicaDifference Message(const ReplicaDifference& found, uint32_t step, const StepTable& table) {
  const Entry& entry = table.entries[found.entry];
  v1::ReplicaDifference message;
  message.set_kind(static_cast<v1::ReplicaDifference::Kind>(found.kind));
  message.set_tensor(std::string(table.rows[found.row].name));
  message.set_op(std::string(entry.name));
  message.set_module(std::string(ModuleOf(entry)));
  message.set_step(step);
  for (uint32_t rank : found.odd) *message.add_odd() = RankOfPlace({step, {v1::Rank::RANK, rank}});
  for (uint32_t rank : found.others) *message.add_others() = RankOfPlace({step, {v1::Rank::RANK, rank}});
  if (entry.stack >= 0) {
    for (const std::string& line : table.stacks[static_cast<size_t>(entry.stack)]) message.add_stack(line);
  }
  return message;
}

}  // namespace

absl::Status CompareReplicas(const AnalysisContext& context, const v1::ReplicasRequest& request,
                             const std::function<bool()>& cancelled, const Send<v1::ReplicasResponse>& send) {
  auto source = OpenedSource::Open(request.source(), context);
  if (!source.ok()) return source.status();
  auto places = PlacesIn(*source, ScopeOf(request.scope()));
  if (!places.ok()) return places.status();
  std::map<uint32_t, std::vector<StepTables::Place>> steps;
  for (const StepTables::Place& place : *places) {
    if (place.second.first == v1::Rank::RANK) steps[place.first].push_back(place);
  }
  if (steps.empty()) {
    return absl::FailedPreconditionError(source->name() + " has no ranks to compare: its processes had none");
  }
  const std::string& glob = request.scope().name_glob();
  Replicas replicas;
  v1::ReplicasResponse response;
  uint64_t done = 0;
  for (const auto& [step, ranks] : steps) {
    std::vector<std::unique_ptr<TableSource>> sources;
    std::vector<RankStep> tables;
    for (const StepTables::Place& place : ranks) {
      if (cancelled()) return PeerGone();
      auto read = source->Read(place, {.stacks = true, .construct = true});
      if (!read.ok()) return read.status();
      sources.push_back(*std::move(read));
      tables.push_back({place.second.second, &sources.back()->table()});
    }
    for (const ReplicaDifference& found : replicas.In(tables)) {
      const StepTable& table = *tables[found.table].table;
      if (!glob.empty() && fnmatch(glob.c_str(), std::string(table.entries[found.entry].name).c_str(), 0) != 0)
        continue;
      *response.mutable_difference() = Message(found, step, table);
      if (!send(response)) return PeerGone();
    }
    response.mutable_progress()->set_steps_done(++done);
    response.mutable_progress()->set_steps_total(steps.size());
    if (!send(response)) return PeerGone();
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
