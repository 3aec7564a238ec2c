#include "server/store/catalogue.h"

#include <string_view>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"

namespace msprobe::server {
namespace {

template <typename Row>
absl::StatusOr<std::vector<Row>> AllRows(const Database& database, const std::string& prefix) {
  std::vector<Row> rows;
  absl::Status status = database.ForEach(Family::kMeta, prefix, [&](std::string_view, std::string_view value) {
    auto row = DecodeAs<Row>(value);
    if (!row.ok()) return row.status();
    rows.push_back(*std::move(row));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return rows;
}

}  // namespace

absl::Status Catalogue::Load() {
  auto row = database_->Find<storage::ServerRow>(ServerKey());
  if (!row.ok()) return row.status();
  absl::MutexLock lock(&registry_mutex_);
  if (row->has_value()) {
    server_ = **row;
    server_id_ = server_.server_id();
    if (server_.format_version() == kStorageFormat) return absl::OkStatus();
    if (server_.format_version() != 1) {
      return absl::FailedPreconditionError(Cat("data directory ", database_->options().directory,
                                               " has storage format ", server_.format_version(),
                                               "; this server reads format ", kStorageFormat));
    }
    // The earlier format is read as it is. What is written from now on is of this one.
  } else {
    absl::BitGen random;
    std::string id;
    AppendU64(id, absl::Uniform<uint64_t>(random));
    AppendU64(id, absl::Uniform<uint64_t>(random));
    server_id_ = Hex(id);
    server_.set_server_id(server_id_);
    server_.set_created_unix_us(absl::ToUnixMicros(database_->Now()));
    server_.set_next_run(1);
  }
  server_.set_format_version(kStorageFormat);
  ChangeSet changes;
  changes.PutMeta(ServerKey(), server_);
  return database_->Write(changes);
}

absl::StatusOr<std::optional<storage::RunRow>> Catalogue::LookUpRun(const std::string& name) const {
  auto number = database_->Get(Family::kMeta, RunByNameKey(name));
  if (!number.ok()) return number.status();
  if (!number->has_value()) return std::optional<storage::RunRow>();
  auto row = database_->Find<storage::RunRow>(RunKey(ReadU32(**number, 0)));
  if (row.ok() && !row->has_value()) return absl::DataLossError(Cat("run \"", name, "\" has a name but no row"));
  return row;
}

absl::StatusOr<storage::RunRow> Catalogue::RunOrNew(const std::string& name, const std::string& owner,
                                                    storage::ServerRow& server, ChangeSet& changes) const {
  auto known = LookUpRun(name);
  if (!known.ok()) return known.status();
  if (known->has_value()) return **known;
  storage::RunRow run;
  run.set_name(name);
  run.set_number(server.next_run());
  run.set_owner(owner);
  run.set_created_unix_us(absl::ToUnixMicros(database_->Now()));
  server.set_next_run(run.number() + 1);
  std::string bytes;
  AppendU32(bytes, run.number());
  changes.Put(Family::kMeta, RunByNameKey(run.name()), bytes);
  changes.PutMeta(ServerKey(), server);
  return run;
}

absl::StatusOr<storage::RunRow> Catalogue::PlaceRun(const std::string& name, const std::vector<std::string>& shards,
                                                    const std::string& owner) {
  absl::MutexLock lock(&registry_mutex_);
  ChangeSet changes;
  storage::ServerRow server = server_;
  auto run = RunOrNew(name, owner, server, changes);
  if (!run.ok() || server.next_run() == server_.next_run()) return run;
  run->mutable_shards()->Assign(shards.begin(), shards.end());
  changes.PutMeta(RunKey(run->number()), *run);
  if (absl::Status status = database_->Write(changes); !status.ok()) return status;
  server_ = server;
  return run;
}

absl::StatusOr<storage::SessionRow> Catalogue::RegisterSession(const v1::Hello& hello, const std::string& owner) {
  absl::MutexLock lock(&registry_mutex_);
  auto known = database_->Find<storage::SessionRow>(SessionKey(hello.session()));
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
  session.set_opened_unix_us(absl::ToUnixMicros(database_->Now()));
  *session.mutable_hello() = hello;
  session.set_holds_payloads(hello.settings().task() == "check");
  run.set_next_epoch(run.next_epoch() + 1);
  changes.PutMeta(RunKey(run.number()), run);
  changes.PutMeta(SessionKey(hello.session()), session);
  changes.Put(Family::kMeta, EpochKey(session.run(), session.epoch()), session.session());
  if (absl::Status status = database_->Write(changes); !status.ok()) return status;
  server_ = server;
  return session;
}

absl::StatusOr<std::vector<storage::RunRow>> Catalogue::Runs() const {
  return AllRows<storage::RunRow>(*database_, MetaPrefix(MetaSpace::kRun));
}

absl::StatusOr<storage::RunRow> Catalogue::FindRun(const std::string& name) const {
  if (auto number = database_->Get(Family::kMeta, RunByNameKey(name)); number.ok() && number->has_value()) {
    auto row = database_->Find<storage::RunRow>(RunKey(ReadU32(**number, 0)));
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

absl::StatusOr<std::vector<storage::SessionRow>> Catalogue::Sessions(std::optional<uint32_t> run) const {
  auto rows = AllRows<storage::SessionRow>(*database_, MetaPrefix(MetaSpace::kSession));
  if (rows.ok() && run.has_value()) {
    std::erase_if(*rows, [&](const storage::SessionRow& row) { return row.run() != *run; });
  }
  return rows;
}

absl::StatusOr<storage::SessionRow> Catalogue::SessionOfEpoch(uint32_t run, uint32_t epoch) const {
  auto id = database_->Get(Family::kMeta, EpochKey(run, epoch));
  if (!id.ok()) return id.status();
  if (!id->has_value()) return absl::NotFoundError(Cat("run ", run, " has no session ", epoch));
  auto row = database_->Find<storage::SessionRow>(SessionKey(**id));
  if (!row.ok()) return row.status();
  if (!row->has_value()) return absl::NotFoundError(Cat("session ", Hex(**id), " has no row"));
  return **row;
}

absl::StatusOr<uint32_t> Catalogue::TakeJobNumber() {
  absl::MutexLock registry(&registry_mutex_);
  storage::ServerRow server = server_;
  server.set_jobs(server.jobs() + 1);
  ChangeSet changes;
  changes.PutMeta(ServerKey(), server);
  if (absl::Status status = database_->Write(changes); !status.ok()) return status;
  server_ = server;
  return server_.jobs();
}

absl::Status Catalogue::SetPinned(const std::string& name, bool pinned) {
  absl::MutexLock registry(&registry_mutex_);
  auto run = FindRun(name);
  if (!run.ok()) return run.status();
  run->set_pinned(pinned);
  ChangeSet changes;
  changes.PutMeta(RunKey(run->number()), *run);
  return database_->Write(changes);
}

absl::Status Catalogue::NoteControl(const std::string& name, const v1::ControlNote& note) {
  constexpr int kMaxNotes = 100;
  absl::MutexLock registry(&registry_mutex_);
  auto run = FindRun(name);
  if (!run.ok()) return run.status();
  *run->add_control_notes() = note;
  const int surplus = run->control_notes_size() - kMaxNotes;
  if (surplus > 0) run->mutable_control_notes()->DeleteSubrange(0, surplus);
  ChangeSet changes;
  changes.PutMeta(RunKey(run->number()), *run);
  return database_->Write(changes);
}

absl::Status Catalogue::AddRunDeletion(const storage::RunRow& run, const std::vector<storage::SessionRow>& sessions,
                                       ChangeSet& changes) const {
  for (const storage::SessionRow& session : sessions) {
    if (session.state() == storage::SessionRow::OPEN) {
      return absl::FailedPreconditionError(Cat("run \"", run.name(), "\" still has an open session (process ",
                                               session.hello().process_id(), " on ", session.hello().host(), ")"));
    }
    changes.Delete(Family::kMeta, SessionKey(session.session()));
  }
  changes.DeletePrefix(Family::kMeta, MetaPrefix(MetaSpace::kEpoch, run.number()));
  changes.Delete(Family::kMeta, RunKey(run.number()));
  changes.Delete(Family::kMeta, RunByNameKey(run.name()));
  return absl::OkStatus();
}

}  // namespace msprobe::server
