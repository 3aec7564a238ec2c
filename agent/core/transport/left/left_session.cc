#include "agent/core/transport/left/left_session.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "agent/core/payload/memory_budget.h"
#include "agent/core/payload/session_place.h"
#include "agent/core/process_identity.h"
#include "agent/core/queue/dictionary.h"
#include "agent/core/queue/fragment_queue.h"
#include "agent/core/str_cat.h"
#include "agent/core/transport/sender.h"

namespace msprobe::core {
namespace {

namespace fs = std::filesystem;

// How often a thread that waits for a server looks whether it is to go on.
constexpr absl::Duration kLook = absl::Milliseconds(100);

constexpr absl::string_view kSpoolOfDumpPath = "/.msprobe/spool";

// Where the memory lies, and the link that led there.
struct MemoryPath {
  std::string path, link;
};

// Nothing: there is none, at least not for this process.
std::optional<MemoryPath> FindMemory(const std::string& directory, const std::string& name) {
  const std::string path = Cat(directory, "/msprobe-", name);
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  if (!fs::is_symlink(path, error)) return MemoryPath{.path = path, .link = ""};
  const fs::path target = fs::read_symlink(path, error);
  if (error || SessionOfName(target.filename().string()) != name) return std::nullopt;
  return MemoryPath{.path = target, .link = path};
}

std::vector<SessionMemory::Left::Piece> PiecesOf(PieceKind kind, std::vector<SessionMemory::Left::Piece>& all) {
  std::vector<SessionMemory::Left::Piece> found;
  for (SessionMemory::Left::Piece& piece : all) {
    if (piece.kind == kind) found.push_back(std::move(piece));
  }
  return found;
}

}  // namespace

std::vector<std::string> LeftSession::Names(const std::string& directory) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    const std::string file = it->path().filename().string();
    if (std::string name = Spool::NameOf(file); !name.empty()) names.insert(std::move(name));
    if (const std::string name(SessionOfName(file)); !name.empty() && FindMemory(directory, name)) names.insert(name);
  }
  return {names.begin(), names.end()};
}

bool LeftSession::IsThere(const std::string& directory, const std::string& name) {
  if (FindMemory(directory, name)) return true;
  if (directory == SharedFile::kDirectory) return false;  // no spool lies there
  const std::vector<std::string> spooled = Spool::Names(directory);
  return std::find(spooled.begin(), spooled.end(), name) != spooled.end();
}

absl::StatusOr<SessionOrigin> LeftSession::Origin(const std::string& directory, const std::string& name) {
  if (const std::optional<MemoryPath> memory = FindMemory(directory, name)) {
    return SessionMemory::ReadOrigin(memory->path);
  }
  return Spool::ReadOrigin(directory, name);
}

absl::StatusOr<std::unique_ptr<LeftSession>> LeftSession::TakeOver(const std::string& directory,
                                                                   const std::string& name) {
  std::unique_ptr<LeftSession> left(new LeftSession);
  std::string spool_directory = directory;
  if (const std::optional<MemoryPath> found = FindMemory(directory, name)) {
    absl::StatusOr<SessionMemory::Left> memory = SessionMemory::TakeOver(found->path, found->link);
    if (!memory.ok()) return memory.status();
    left->memory_ = *std::move(memory);
    left->origin_ = left->memory_->origin;
    left->server_ = left->memory_->server;
    for (const SessionMemory::Left::Piece& piece : left->memory_->pieces) {
      if (piece.kind != PieceKind::kDictionary) left->bytes_ += piece.used;
    }
    if (ToHex(left->origin_.hello().session()) != name) {
      return absl::DataLossError(Cat(found->path, " is damaged: it is of another session"));
    }
    // What was found by another way than the spool's directory may have something there.
    std::error_code error;
    if (fs::is_directory(left->origin_.spool_directory(), error)) spool_directory = left->origin_.spool_directory();
  }
  const std::vector<std::string> spooled = Spool::Names(spool_directory);
  if (std::find(spooled.begin(), spooled.end(), name) != spooled.end()) {
    absl::StatusOr<Spool::Left> spool = Spool::TakeOver(spool_directory, name);
    if (!spool.ok() && !left->memory_.has_value()) return spool.status();
    // Beside memory that nobody holds, segments without an origin are what was begun and not written.
    if (!spool.ok() && !absl::IsDataLoss(spool.status())) return spool.status();
    if (spool.ok()) {
      left->bytes_ += spool->spool.held_bytes();
      if (!left->memory_.has_value()) left->origin_ = spool->origin;
      left->spool_.emplace(*std::move(spool));
    }
  }
  if (!left->memory_.has_value() && !left->spool_.has_value()) {
    return absl::NotFoundError(Cat("nothing of session ", name, " is in ", directory));
  }
  // A volume may have been mounted elsewhere since.
  if (left->origin_.servers().empty() && absl::EndsWith(directory, kSpoolOfDumpPath)) {
    left->origin_.set_dump_path(directory.substr(0, directory.size() - kSpoolOfDumpPath.size()));
  }
  return left;
}

LeftSession::~LeftSession() {
  if (memory_.has_value() && memory_->memory != nullptr) memory_->memory->Leave();
}

absl::StatusOr<LeftSession::Sent> LeftSession::Send(Route route, absl::Duration patience, const GoOn& go_on,
                                                    const Log* log) {
  Sent sent;
  std::shared_ptr<SessionMemory> memory = memory_.has_value() ? memory_->memory : SessionMemory::Private();
  const auto bell = std::make_shared<Doorbell>();
  // Everything is in memory already, or in files.
  const auto budget = std::make_shared<MemoryBudget>(std::numeric_limits<size_t>::max() / 2, LossPolicy::kSpool,
                                                     absl::ZeroDuration(), [bell] { bell->Ring(); });
  FragmentQueue queue(bell.get(), memory);
  Dictionary dictionary(memory);
  AtomicCounters counters;
  Outbox::Left held;
  if (spool_.has_value()) held.spooled = spool_->entries;
  if (memory_.has_value()) {
    std::vector<SessionMemory::Left::Piece>& pieces = memory_->pieces;
    held.batches = PiecesOf(PieceKind::kBatch, pieces);
    held.payloads = PiecesOf(PieceKind::kPayload, pieces);
    held.freed_through = memory_->freed_through;
    held.cut_through = memory_->cut_through;
    held.last_entry = memory_->cut_entry;
    for (const SessionMemory::Left::Piece& batch : held.batches) {
      if (batch.facts.number >= held.cut_through) held.last_entry = batch.facts.last_entry;
    }
    dictionary.Restore(PiecesOf(PieceKind::kDictionary, pieces));
    const uint64_t senseless =
        queue.Restore(PiecesOf(PieceKind::kQueue, pieces), held.last_entry, memory_->losses_after, memory_->losses);
    if (senseless > 0) {
      log->Warning(
          Cat("msprobe: ", memory->path(), " holds ", senseless, " records that make no sense; the run lacks them."));
    }
  }
  sent.batches = held.batches.size();
  sent.payloads = held.payloads.size();
  // Without a queue what was spooled counts as its first entry.
  if (!memory_.has_value()) held.last_entry = 1;
  const uint64_t last = std::max(queue.Flush(), held.last_entry);
  sent.records = last - held.last_entry;
  const bool nothing = held.batches.empty() && held.payloads.empty() && held.spooled.empty() && sent.records == 0;
  // A server that was killed, too, had perhaps not exported all that it had.
  const bool awaits_exports =
      origin_.servers().empty() && (!nothing || (memory_.has_value() && memory_->freed_through > 0));

  v1::Hello hello = origin_.hello();
  hello.clear_capabilities();  // nobody is there to obey
  hello.add_capabilities("redirect");
  Spool spool = spool_.has_value() ? std::move(spool_->spool) : Spool("", "", 0);
  Sender sender(SenderParts{.queue = &queue,
                            .dictionary = &dictionary,
                            .memory = memory,
                            .budget = budget,
                            .bell = bell,
                            .log = log,
                            .counters = &counters,
                            .control = nullptr,
                            .shares_memory = origin_.shares_memory()},
                std::move(hello), Connector(std::move(route), bell, log), std::move(spool), false,
                absl::ZeroDuration());
  if (absl::Status status = sender.Restore(std::move(held)); !status.ok()) {
    memory->Leave();
    return status;
  }
  if (awaits_exports) sender.AwaitExportsOfLeft();
  sender.Start();
  absl::Status status = nothing && !awaits_exports ? absl::OkStatus() : absl::UnavailableError("");
  uint64_t moved = 0;
  absl::Time moved_at = absl::Now();
  while (!status.ok() && go_on(counters.connected) && absl::Now() < moved_at + patience) {
    status = sender.Wait(last, kLook);
    const uint64_t now = counters.bytes_sent + counters.durable_through + counters.steps_exported;
    if (std::exchange(moved, now) != now) moved_at = absl::Now();
  }
  sender.Stop(absl::ZeroDuration());
  if (counters.fragments_dropped > 0) {
    log->Warning(Cat("msprobe: ", counters.fragments_dropped.load(), " records that process ",
                     origin_.hello().process_id(), " left are damaged; the run lacks them."));
  }
  if (counters.payloads_dropped > 0) {
    log->Warning(Cat("msprobe: the bytes of ", counters.payloads_dropped.load(), " tensors died with process ",
                     origin_.hello().process_id(), "; their steps stay incomplete."));
  }
  if (memory_.has_value()) memory_->memory.reset();
  if (!status.ok()) return absl::UnavailableError(status.message());
  return sent;
}

}  // namespace msprobe::core
