// Runs, sessions, definitions and steps of the store.

#include <set>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "server/format/cat.h"
#include "server/store/session_order.h"
#include "server/store/store.h"
#include "server/store/stored_blocks.h"
#include "server/store/tiles/tiled_passes.h"

namespace msprobe::server {
namespace {

template <typename Row>
absl::StatusOr<std::vector<Row>> AllRows(const Store& store, const std::string& prefix) {
  std::vector<Row> rows;
  absl::Status status = store.ForEach(Family::kMeta, prefix, [&](std::string_view, std::string_view value) {
    auto row = DecodeAs<Row>(value);
    if (row.ok()) rows.push_back(*std::move(row));
    return row.status();
  });
  if (!status.ok()) return status;
  return rows;
}

constexpr size_t kMaxNamed = 20;

std::string Listed(const std::set<std::string>& names, const std::vector<std::string>& in_order) {
  if (names.empty()) return "none";
  return Cat(absl::StrJoin(in_order, ", "), names.size() > kMaxNamed ? ", ..." : "");
}

// Names what there is instead, the first of it: a message that reads some tens of keys and the run's sessions, however
// many steps there are.
absl::Status NoSuchStep(const Store& store, const storage::RunRow& run, uint32_t step, const v1::Rank& rank,
                        std::optional<uint32_t> epoch) {
  const std::string where = Cat("run \"", run.name(), "\" has no ");
  std::set<std::string> seen;
  std::vector<std::string> named;
  const auto add = [&](std::string name) {
    if (!seen.insert(name).second) return true;
    if (seen.size() > kMaxNamed) return false;
    named.push_back(std::move(name));
    return true;
  };
  const auto enough = absl::CancelledError("enough");
  const auto list = [&](const std::string& prefix, auto name_of) {
    absl::Status status = store.ForEach(Family::kMeta, prefix, [&](std::string_view key, std::string_view) {
      auto found = StepKey::Decode(key);
      if (!found.ok()) return found.status();
      return add(name_of(*found)) ? absl::OkStatus() : enough;
    });
    return absl::IsCancelled(status) ? absl::OkStatus() : status;
  };
  const std::string of_rank = MetaPrefix(MetaSpace::kStep, run.number(), RankCode(rank));
  if (epoch.has_value()) {
    std::string of_step = of_rank;
    AppendU32(of_step, step);
    absl::Status status = list(of_step, [](const StepKey& key) { return Cat(key.epoch); });
    if (!status.ok()) return status;
    if (!named.empty()) {
      return absl::NotFoundError(
          Cat(where, "epoch ", *epoch, " of step ", step, " of ", RankName(rank), "; it has ", Listed(seen, named)));
    }
  }
  absl::Status status = list(of_rank, [](const StepKey& key) { return Cat(key.step); });
  if (!status.ok()) return status;
  if (!named.empty()) {
    return absl::NotFoundError(Cat(where, "step ", step, " of ", RankName(rank), "; it has ", Listed(seen, named)));
  }
  auto sessions = store.Sessions(run.number());
  if (!sessions.ok()) return sessions.status();
  std::set<uint32_t> ranks;
  for (const storage::SessionRow& session : *sessions) ranks.insert(RankCode(session.hello().rank()));
  for (uint32_t code : ranks) {
    if (!add(RankName(RankOfCode(code)))) break;
  }
  return absl::NotFoundError(Cat(where, RankName(rank), "; it has ", Listed(seen, named)));
}

}  // namespace

absl::StatusOr<std::optional<storage::RunRow>> Store::LookUpRun(const std::string& name) const {
  auto number = Get(Family::kMeta, RunByNameKey(name));
  if (!number.ok()) return number.status();
  if (!number->has_value()) return std::optional<storage::RunRow>();
  auto row = Find<storage::RunRow>(RunKey(ReadU32(**number, 0)));
  if (row.ok() && !row->has_value()) return absl::DataLossError(Cat("run \"", name, "\" has a name but no row"));
  return row;
}

absl::StatusOr<storage::RunRow> Store::RunOrNew(const std::string& name, const std::string& owner,
                                                storage::ServerRow& server, ChangeSet& changes) const {
  auto known = LookUpRun(name);
  if (!known.ok()) return known.status();
  if (known->has_value()) return **known;
  storage::RunRow run;
  run.set_name(name);
  run.set_number(server.next_run());
  run.set_owner(owner);
  run.set_created_unix_us(absl::ToUnixMicros(Now()));
  server.set_next_run(run.number() + 1);
  std::string bytes;
  AppendU32(bytes, run.number());
  changes.Put(Family::kMeta, RunByNameKey(run.name()), bytes);
  changes.PutMeta(ServerKey(), server);
  return run;
}

absl::StatusOr<storage::RunRow> Store::PlaceRun(const std::string& name, const std::vector<std::string>& shards,
                                                const std::string& owner) {
  absl::MutexLock lock(&registry_mutex_);
  ChangeSet changes;
  storage::ServerRow server = server_;
  auto run = RunOrNew(name, owner, server, changes);
  if (!run.ok() || server.next_run() == server_.next_run()) return run;
  run->mutable_shards()->Assign(shards.begin(), shards.end());
  changes.PutMeta(RunKey(run->number()), *run);
  if (absl::Status status = Write(changes); !status.ok()) return status;
  server_ = server;
  return run;
}

absl::StatusOr<storage::SessionRow> Store::RegisterSession(const v1::Hello& hello, const std::string& owner) {
  absl::MutexLock lock(&registry_mutex_);
  auto known = Find<storage::SessionRow>(SessionKey(hello.session()));
  if (!known.ok()) return known.status();
  if (known->has_value()) {
    if ((*known)->hello().run() == hello.run()) return **known;
    return absl::FailedPreconditionError(Cat("session ", Hex(hello.session()), " belongs to run \"",
                                             (*known)->hello().run(), "\", not to \"", hello.run(), "\""));
  }

  ChangeSet changes;
  storage::ServerRow server = server_;
  auto found = RunOrNew(hello.run(), owner, server, changes);
  if (!found.ok()) return found.status();
  storage::RunRow run = *std::move(found);

  storage::SessionRow session;
  session.set_session(hello.session());
  session.set_run(run.number());
  session.set_epoch(run.next_epoch());
  session.set_opened_unix_us(absl::ToUnixMicros(Now()));
  *session.mutable_hello() = hello;
  run.set_next_epoch(run.next_epoch() + 1);
  changes.PutMeta(RunKey(run.number()), run);
  changes.PutMeta(SessionKey(hello.session()), session);
  changes.Put(Family::kMeta, EpochKey(session.run(), session.epoch()), session.session());
  if (absl::Status status = Write(changes); !status.ok()) return status;
  server_ = server;
  return session;
}

absl::StatusOr<std::vector<storage::RunRow>> Store::Runs() const {
  return AllRows<storage::RunRow>(*this, MetaPrefix(MetaSpace::kRun));
}

absl::StatusOr<storage::RunRow> Store::FindRun(const std::string& name) const {
  if (auto number = Get(Family::kMeta, RunByNameKey(name)); number.ok() && number->has_value()) {
    auto row = Find<storage::RunRow>(RunKey(ReadU32(**number, 0)));
    if (!row.ok()) return row.status();
    if (row->has_value()) return **row;
  }
  auto runs = Runs();
  if (!runs.ok()) return runs.status();
  std::vector<std::string> names;
  for (storage::RunRow& run : *runs) {
    if (run.name() == name) return run;
    if (names.size() < 20) names.push_back(run.name());
  }
  return absl::NotFoundError(Cat("no run \"", name, "\"; ",
                                 names.empty() ? "there are none" : Cat("there are: ", absl::StrJoin(names, ", "))));
}

absl::StatusOr<std::vector<storage::SessionRow>> Store::Sessions(std::optional<uint32_t> run) const {
  auto rows = AllRows<storage::SessionRow>(*this, MetaPrefix(MetaSpace::kSession));
  if (rows.ok() && run.has_value()) {
    std::erase_if(*rows, [&](const storage::SessionRow& row) { return row.run() != *run; });
  }
  return rows;
}

absl::StatusOr<storage::SessionRow> Store::SessionOfEpoch(uint32_t run, uint32_t epoch) const {
  auto id = Get(Family::kMeta, EpochKey(run, epoch));
  if (!id.ok()) return id.status();
  if (!id->has_value()) return absl::NotFoundError(Cat("run ", run, " has no session ", epoch));
  auto row = Find<storage::SessionRow>(SessionKey(**id));
  if (!row.ok()) return row.status();
  if (!row->has_value()) return absl::NotFoundError(Cat("session ", Hex(**id), " has no row"));
  return **row;
}

absl::StatusOr<StoredDefinition> Store::Definition(uint32_t run, uint64_t id) const {
  auto value = Get(Family::kMeta, DefinitionKey(run, id));
  if (!value.ok()) return value.status();
  if (!value->has_value()) return absl::NotFoundError(absl::StrFormat("run %d has no definition %016x", run, id));
  return DecodeDefinition(**value);
}

absl::StatusOr<SharedStructure> Store::Structure(uint32_t run, uint64_t id) const {
  if (SharedStructure known = structures_.Find(run, id); known != nullptr) return known;
  auto definition = Definition(run, id);
  if (!definition.ok()) return definition.status();
  if (definition->kind != DefinitionKind::kStructure) {
    return absl::DataLossError("the definition of a structure is that of something else");
  }
  auto structure = DecodeStructure(definition->bytes);
  if (structure.ok()) structures_.Keep(run, id, *structure);
  return structure;
}

absl::StatusOr<std::vector<Store::Step>> Store::Steps(uint32_t run) const {
  return StepsUnder(MetaPrefix(MetaSpace::kStep, run));
}

absl::StatusOr<std::vector<Store::Step>> Store::Steps(uint32_t run, const v1::Rank& rank, uint32_t step) const {
  std::string prefix = MetaPrefix(MetaSpace::kStep, run, RankCode(rank));
  AppendU32(prefix, step);
  return StepsUnder(prefix);
}

absl::StatusOr<std::vector<Store::Step>> Store::StepsUnder(const std::string& prefix) const {
  std::vector<Step> steps;
  absl::Status status =
      ForEach(Family::kMeta, prefix, [&](std::string_view key, std::string_view value) -> absl::Status {
        auto step = StepKey::Decode(key);
        if (!step.ok()) return step.status();
        steps.emplace_back().first = *step;
        return DecodeValue(value, steps.back().second);
      });
  if (!status.ok()) return status;
  return steps;
}

absl::StatusOr<std::unique_ptr<RecordSource>> Store::OpenStep(const std::string& run_name, uint32_t step,
                                                              const v1::Rank& rank,
                                                              std::optional<uint32_t> epoch) const {
  auto run = FindRun(run_name);
  if (!run.ok()) return run.status();
  std::optional<Step> there;
  SessionOrder order(this, run->number());
  std::string prefix = MetaPrefix(MetaSpace::kStep, run->number(), RankCode(rank));
  AppendU32(prefix, step);
  absl::Status looked = ForEach(Family::kMeta, prefix, [&](std::string_view key, std::string_view value) {
    auto found = StepKey::Decode(key);
    if (!found.ok() || (epoch.has_value() && found->epoch != *epoch)) return found.status();
    if (there.has_value()) {
      auto later = order.BeganLater(found->epoch, there->first.epoch);
      if (!later.ok() || !*later) return later.status();
    }
    auto row = DecodeAs<storage::StepRow>(value);
    if (row.ok()) there = {*found, *std::move(row)};
    return row.status();
  });
  if (!looked.ok()) return looked;
  if (there.has_value()) return OpenStoredRecords(*this, *run, there->first, there->second);

  return NoSuchStep(*this, *run, step, rank, epoch);
}

absl::Status Store::AddStepDeletion(const StepKey& step, ChangeSet& changes) const {
  ++deletions_;
  absl::Status status = ForEach(Family::kRows, RowKey::StepPrefix(step.run, step.rank, step.step),
                                [&](std::string_view key, std::string_view) {
                                  auto row = RowKey::Decode(key);
                                  if (row.ok() && row->epoch == step.epoch)
                                    changes.Delete(Family::kRows, std::string(key));
                                  return row.status();
                                });
  if (!status.ok()) return status;
  if (status = AddPassDeletion(*this, step, changes); !status.ok()) return status;
  changes.Delete(Family::kMeta, step.Encode());
  changes.Delete(Family::kMeta, step.Encode(MetaSpace::kUntiled));
  changes.Delete(Family::kMeta, step.Encode(MetaSpace::kTiled));
  std::string faults = FaultKey(step, 0);
  faults.resize(faults.size() - 4);
  changes.DeletePrefix(Family::kMeta, faults);
  return absl::OkStatus();
}

absl::Status Store::AddRankMove(uint32_t run, uint32_t epoch, uint32_t from, uint32_t to, ChangeSet& changes) const {
  ++deletions_;
  // Each of these key spaces has run | rank behind `skip` bytes, and the epoch somewhere.
  auto move = [&](Family family, const std::string& prefix, size_t skip, size_t epoch_at) {
    return ForEach(family, prefix, [&](std::string_view key, std::string_view value) {
      if (key.size() < epoch_at + 4 || ReadU32(key, epoch_at) != epoch) return absl::OkStatus();
      std::string moved(key.substr(0, skip + 4));
      AppendU32(moved, to);
      moved.append(key.substr(skip + 8));
      changes.Delete(family, std::string(key));
      changes.Put(family, std::move(moved), std::string(value));
      return absl::OkStatus();
    });
  };
  absl::Status status = move(Family::kRows, RowKey::RankPrefix(run, from), 0, 16);
  for (MetaSpace space : {MetaSpace::kStep, MetaSpace::kUntiled, MetaSpace::kTiled}) {
    if (status.ok()) status = move(Family::kMeta, MetaPrefix(space, run, from), 1, 13);
  }
  if (status.ok()) status = move(Family::kTiles, RowKey::RankPrefix(run, from), 0, 8);
  if (status.ok()) status = move(Family::kMeta, MetaPrefix(MetaSpace::kTileSet, run, from), 1, 9);
  if (status.ok()) status = move(Family::kMeta, MetaPrefix(MetaSpace::kFault, run, from), 1, 13);
  return status;
}

}  // namespace msprobe::server
