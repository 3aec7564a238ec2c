#include "server/analysis/divergence/overflow.h"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/analysis/compare/comparison.h"
#include "server/analysis/divergence/finiteness.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"
#include "server/query/analysis_context.h"
#include "server/query/analysis_request.h"
#include "server/query/look_again.h"
#include "server/query/opened_source.h"
#include "server/query/side_notes.h"

namespace msprobe::server {
namespace {

v1::Overflow Message(const OverflowOrigin& origin, const StepTable& table, const StepTables::Place& place) {
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

class Search {
 public:
  Search(const AnalysisContext& context, const v1::OverflowRequest& request, const std::function<bool()>& cancelled,
         const Send<v1::OverflowResponse>& send)
      : context_(context), request_(request), cancelled_(cancelled), send_(send) {}

  absl::Status Run() {
    auto source = OpenedSource::Open(request_.source(), context_);
    if (!source.ok()) return source.status();
    auto places = PlacesIn(*source, ScopeOf(request_.scope()));
    if (!places.ok()) return places.status();
    total_ = places->size();
    if (!SendNotes(*source, *places)) return PeerGone();
    for (const StepTables::Place& place : *places) {
      if (absl::Status status = Look(*source, place); !status.ok()) return status;
    }
    if (!SendNotesOfValues(*source)) return PeerGone();
    if (!is_named_) {
      const std::string& glob = request_.scope().name_glob();
      return absl::NotFoundError(glob.empty() ? Cat(source->name(), " has no record")
                                              : Cat("no record is called ", glob));
    }
    if (!first_) return absl::OkStatus();
    v1::OverflowResponse response;
    *response.mutable_overflow() = *std::move(first_);
    response.mutable_overflow()->set_first(true);
    return send_(response) ? absl::OkStatus() : PeerGone();
  }

  absl::Status Follow() {
    if (request_.source().kind_case() != v1::Source::kRun) {
      return absl::InvalidArgumentError("follow: only a run goes on; the source is a path");
    }
    for (bool last = false; !last;) {
      // Asked before the steps are: what an open session may still complete is looked at next time.
      auto open = HasOpenSession();
      if (!open.ok()) return open.status();
      last = !*open;
      if (absl::Status status = LookAtNew(last); !status.ok()) return status;
      if (!last && !WaitToLookAgain(cancelled_)) return PeerGone();
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<bool> HasOpenSession() const {
    if (context_.peers != nullptr) {
      auto source = OpenedSource::Open(request_.source(), context_);
      if (!source.ok()) return source.status();
      return source->open_sessions() > 0;
    }
    auto run = context_.store->catalogue().FindRun(request_.source().run());
    if (!run.ok()) return run.status();
    auto sessions = context_.store->catalogue().Sessions(run->number());
    if (!sessions.ok()) return sessions.status();
    return std::any_of(sessions->begin(), sessions->end(),
                       [](const storage::SessionRow& session) { return session.state() == storage::SessionRow::OPEN; });
  }

  // Steps that have ended since the last time; those that have not, too, where nothing comes any more.
  absl::Status LookAtNew(bool unfinished) {
    auto source = OpenedSource::Open(request_.source(), context_);
    if (!source.ok()) return source.status();
    auto places = PlacesIn(*source, ScopeOf(request_.scope()));
    if (absl::IsNotFound(places.status())) return absl::OkStatus();
    if (!places.ok()) return places.status();
    total_ = places->size();
    for (const StepTables::Place& place : *places) {
      if (looked_at_.contains(place) || (!unfinished && source->IsOpen(place))) continue;
      looked_at_.insert(place);
      if (!SendNotes(*source, {place})) return PeerGone();
      if (absl::Status status = Look(*source, place); !status.ok()) return status;
    }
    return !unfinished || SendNotesOfValues(*source) ? absl::OkStatus() : PeerGone();
  }

  // False: the peer is gone.
  bool SendNotes(const OpenedSource& source, const std::vector<StepTables::Place>& places) const {
    v1::OverflowResponse response;
    for (std::string& note : NotesOfMissingRecords(source, places)) {
      response.set_note(std::move(note));
      if (!send_(response)) return false;
    }
    return true;
  }

  // Tells of steps that no origin can be named in. False: the peer is gone.
  bool SendNotesOfValues(const OpenedSource& source) const {
    v1::OverflowResponse response;
    if (blind_ > 0) {
      response.set_note(NoteOfNoStatistics(source, blind_));
      if (!send_(response)) return false;
    }
    if (has_origins_ || without_origin_ == 0) return true;
    response.set_note(Cat(without_origin_, without_origin_ == 1 ? " step of " : " steps of ", source.name(),
                          " had NaN or infinity that no operation began: masks, memory that nothing wrote to, or what "
                          "another rank sent"));
    return send_(response);
  }

  bool IsNamed(std::string_view name) const {
    const std::string& glob = request_.scope().name_glob();
    return glob.empty() || fnmatch(glob.c_str(), std::string(name).c_str(), 0) == 0;
  }

  absl::Status Look(const OpenedSource& source, const StepTables::Place& place) {
    if (cancelled_()) return PeerGone();
    auto step = source.Read(place, {.stacks = true, .construct = true});
    if (!step.ok()) return step.status();
    const StepTable& table = (*step)->table();
    v1::OverflowResponse response;
    uint32_t sent = 0;
    bool first_of_place = true;
    blind_ += !HasAnyStatistics(table);
    is_named_ =
        is_named_ || std::ranges::any_of(table.entries, [&](const Entry& entry) { return IsNamed(entry.name); });
    without_origin_ += std::ranges::any_of(
        table.rows, [&](const Row& row) { return row.is_tensor && !FinitenessOf(table, row).finite(); });
    for (const OverflowOrigin& origin : origins_[place.second].In(place.first, table)) {
      has_origins_ = true;
      const std::string name(table.entries[origin.entry].name);
      if (!IsNamed(name)) continue;
      if (request_.limit() != 0 && ++sent > request_.limit()) break;
      *response.mutable_overflow() = Message(origin, table, place);
      if (request_.with_entries() && first_of_place) {
        auto entry = source.ReadEntry(place, name);
        if (!entry.ok()) return entry.status();
        response.mutable_overflow()->set_entry_json(std::move(entry->json));
        for (std::string& module : entry->modules) response.mutable_overflow()->add_modules(std::move(module));
      }
      first_of_place = false;
      if (first_origin_.Take(place.first, origin)) first_ = response.overflow();
      if (!send_(response)) return PeerGone();
    }
    response.mutable_progress()->set_steps_done(++done_);
    response.mutable_progress()->set_steps_total(total_);
    return send_(response) ? absl::OkStatus() : PeerGone();
  }

  const AnalysisContext& context_;
  const v1::OverflowRequest& request_;
  const std::function<bool()>& cancelled_;
  const Send<v1::OverflowResponse>& send_;
  std::set<StepTables::Place> looked_at_;
  size_t blind_ = 0;           // steps without statistics
  size_t without_origin_ = 0;  // steps with tensors that are not finite
  bool has_origins_ = false;   // of whichever name
  std::map<decltype(StepTables::Place::second), NewOverflowOrigins> origins_;
  FirstOverflow first_origin_;
  std::optional<v1::Overflow> first_;  // its message
  bool is_named_ = false;              // whether a record has the name that is asked for
  uint64_t done_ = 0;
  uint64_t total_ = 0;
};

}  // namespace

absl::Status Overflow(const AnalysisContext& context, const v1::OverflowRequest& request,
                      const std::function<bool()>& cancelled, const Send<v1::OverflowResponse>& send) {
  Search search(context, request, cancelled, send);
  return request.follow() ? search.Follow() : search.Run();
}

}  // namespace msprobe::server
