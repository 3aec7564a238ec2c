#include "server/store/tiles/tiler.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/store/stored_blocks.h"

namespace msprobe::server {
namespace {

// About 200 bytes each.
constexpr size_t kMaxStructures = 100'000;

// Of all that a reader's layout depends on, which is everything but numbers, shapes and which stack it was.
uint64_t LayoutHash(const std::vector<const v1::Block*>& blocks) {
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  XXH3_64bits_reset(state.get());
  std::vector<uint64_t> words;
  for (const v1::Block* block : blocks) {
    words.clear();
    uint64_t ordinal = 0;
    for (int i = 0; i < block->structure_size(); ++i) {
      ordinal += static_cast<uint64_t>(block->ordinal_delta(i));
      const std::string* parent =
          block->parent(i) == 0 ? nullptr : &block->parents(static_cast<int>(block->parent(i)) - 1);
      words.push_back(block->structures(static_cast<int>(block->structure(i))));
      words.push_back(uint64_t{block->count(i)} << 32 | block->token());
      words.push_back(ordinal);
      words.push_back(uint64_t{block->fragment_flags(i)} << 1 | (block->stack(i) != 0 ? 1 : 0));
      words.push_back(parent == nullptr ? 0 : XXH3_64bits(parent->data(), parent->size()));
    }
    for (uint32_t flags : block->leaf_flags()) words.push_back(flags & v1::LEAF_PAYLOAD);
    for (bool value : block->booleans()) words.push_back(value ? 1 : 0);
    for (const std::string& text : block->strings()) words.push_back(XXH3_64bits(text.data(), text.size()));
    XXH3_64bits_update(state.get(), words.data(), words.size() * sizeof(words[0]));
  }
  return XXH3_64bits_digest(state.get());
}

// What a newer agent said and this server does not know would be lost in a tile.
bool IsKnown(const v1::Block& block) {
  const auto unknown = [](const google::protobuf::Message& message) {
    return !message.GetReflection()->GetUnknownFields(message).empty();
  };
  if (unknown(block)) return false;
  for (const v1::NonFinite& entry : block.non_finite()) {
    if (unknown(entry)) return false;
  }
  for (const v1::PayloadRef& payload : block.payload()) {
    if (unknown(payload)) return false;
  }
  for (const v1::Shape& shape : block.shapes()) {
    if (unknown(shape)) return false;
  }
  return true;
}

absl::Status Changed() { return absl::AbortedError("the rows of a set changed while it was made"); }

}  // namespace

Tiler::Tiler(Store* store, TilerOptions options) : store_(store), options_(options) {}

Tiler::~Tiler() { Stop(); }

void Tiler::Start() {
  absl::MutexLock lock(&mu_);
  if (running_) return;
  running_ = true;
  stopping_ = false;
  thread_ = std::thread([this] { Loop(); });
}

void Tiler::Stop() {
  {
    absl::MutexLock lock(&mu_);
    if (!running_) return;
    stopping_ = true;
  }
  thread_.join();
  absl::MutexLock lock(&mu_);
  running_ = false;
}

bool Tiler::stopping() const {
  absl::MutexLock lock(&mu_);
  return stopping_;
}

Tiler::Counters Tiler::counters() const {
  absl::MutexLock lock(&mu_);
  return counters_;
}

void Tiler::Loop() {
  // Of this thread alone: Linux takes thread ids here.
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), options_.niceness);
  uint64_t looked_at = 0;
  while (true) {
    {
      absl::MutexLock lock(&mu_);
      if (mu_.AwaitWithTimeout(absl::Condition(&stopping_), options_.period)) return;
    }
    // What was written since the last look, also by the last look, may make another set.
    const uint64_t sequence = store_->database().sequence();
    if (sequence == looked_at) continue;
    if (RunOnce().ok()) {
      looked_at = sequence;
    } else {
      absl::MutexLock lock(&mu_);
      ++counters_.failures;
    }
  }
}

void Tiler::Rest(absl::Duration worked) {
  absl::MutexLock lock(&mu_);
  counters_.busy += worked;
  if (running_ && options_.duty < 1) {
    mu_.AwaitWithTimeout(absl::Condition(&stopping_), worked * (1 / options_.duty - 1));
  }
}

absl::StatusOr<std::vector<StepKey>> Tiler::Waiting() const {
  std::vector<StepKey> steps;
  absl::Status status = store_->database().ForEach(Family::kMeta, MetaPrefix(MetaSpace::kUntiled),
                                                   [&](std::string_view key, std::string_view) {
                                                     auto step = StepKey::Decode(key);
                                                     if (step.ok()) steps.push_back(*step);
                                                     return step.status();
                                                   });
  if (!status.ok()) return status;
  return steps;
}

absl::Status Tiler::RunOnce() {
  auto waiting = Waiting();
  if (!waiting.ok()) return waiting.status();
  {
    absl::MutexLock lock(&mu_);
    counters_.waiting = waiting->size();
  }
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<StepKey>> sessions;
  absl::flat_hash_map<std::string, Notes> kept;
  for (const StepKey& step : *waiting) {
    sessions[{step.run, step.rank, step.epoch}].push_back(step);
    if (auto known = notes_.find(step.Encode()); known != notes_.end()) kept.insert(std::move(*known));
  }
  notes_ = std::move(kept);
  absl::Status failed;
  for (const auto& [session, steps] : sessions) {
    if (stopping()) return absl::OkStatus();
    // One that fails does not keep the others from their tiles.
    if (absl::Status status = TileSession(steps); !status.ok() && !absl::IsAborted(status)) failed = status;
  }
  return failed;
}

absl::Status Tiler::TileSession(const std::vector<StepKey>& steps) {
  auto session = store_->catalogue().SessionOfEpoch(steps[0].run, steps[0].epoch);
  if (!session.ok()) return session.status();
  const bool ended = session->state() == storage::SessionRow::ENDED;
  std::map<uint64_t, Notes> alike;
  std::map<uint64_t, uint64_t> bytes;
  for (const StepKey& step : steps) {
    if (stopping()) return absl::OkStatus();
    const absl::Time began = absl::Now();
    const bool known = notes_.contains(step.Encode());
    auto notes = Look(step);
    if (!notes.ok()) return notes.status();
    if (!known) Rest(absl::Now() - began);
    if (notes->empty()) {
      if (absl::Status status = GiveUp({step}); !status.ok()) return status;
    }
    for (const Note& note : *notes) {
      Notes& group = alike[note.signature];
      uint64_t& group_bytes = bytes[note.signature];
      group.push_back(note);
      group_bytes += note.bytes;
      if (group.size() < options_.passes && group_bytes < options_.set_bytes) continue;
      const absl::Time writing = absl::Now();
      if (absl::Status status = WriteSet(group); !status.ok()) return status;
      Rest(absl::Now() - writing);
      group.clear();
      group_bytes = 0;
    }
  }
  if (!ended && steps.size() <= options_.max_waiting) return absl::OkStatus();
  for (const auto& [signature, group] : alike) {
    if (group.size() < options_.fewest_passes) continue;
    if (absl::Status status = WriteSet(group); !status.ok()) return status;
  }
  const size_t given_up = ended ? steps.size() : steps.size() / 2;
  return GiveUp({steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(given_up)});
}

absl::StatusOr<Tiler::Notes> Tiler::Look(const StepKey& step) {
  const std::string name = step.Encode();
  if (const auto known = notes_.find(name); known != notes_.end()) return known->second;
  Notes notes;
  absl::Status status =
      ForEachPass(step, RowKey::StepPrefix(step.run, step.rank, step.step), [&](uint32_t token, const Rows& rows) {
        std::vector<const v1::Block*> blocks;
        uint64_t bytes = 0;
        bool whole = true;
        for (const Row& row : rows) {
          blocks.push_back(row.block.get());
          bytes += row.bytes;
          whole = whole && IsKnown(*row.block);
        }
        auto pass = TilePass::Make(blocks, [&](uint64_t id) { return Structure(step.run, id); });
        // What does not keep to its structures stays as it came.
        if (whole && pass.ok() && pass->fragments() > 0) notes.push_back({step, token, pass->signature(), bytes});
      });
  if (!status.ok()) return status;
  return notes_.insert_or_assign(name, std::move(notes)).first->second;
}

absl::Status Tiler::ForEachPass(const StepKey& step, const std::string& prefix,
                                absl::FunctionRef<void(uint32_t, const Rows&)> visit) const {
  Rows rows;
  const auto finish = [&] {
    if (!rows.empty()) visit(rows[0].key.token, rows);
    rows.clear();
  };
  absl::Status status = store_->database().ForEach(
      Family::kRows, prefix, [&](std::string_view bytes, std::string_view value) -> absl::Status {
        auto key = RowKey::Decode(bytes);
        if (!key.ok() || key->epoch != step.epoch) return key.status();
        if (!rows.empty() && rows[0].key.token != key->token) finish();
        rows.push_back({*key, std::make_shared<v1::Block>(), bytes.size() + value.size()});
        return DecodeValue(value, *rows.back().block);
      });
  finish();
  return status;
}

absl::StatusOr<uint32_t> Tiler::NextSet(const StepKey& session) {
  const std::pair<uint32_t, uint32_t> name(session.run, session.epoch);
  if (const auto known = next_set_.find(name); known != next_set_.end()) return known->second;
  std::string prefix = TileSetKey(session.run, session.rank, session.epoch, 0);
  prefix.resize(prefix.size() - sizeof(uint32_t));
  uint32_t next = 0;
  absl::Status status = store_->database().ForEach(Family::kMeta, prefix, [&](std::string_view key, std::string_view) {
    next = ReadU32(key, prefix.size()) + 1;
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return next_set_[name] = next;
}

const StructureSummary* Tiler::Structure(uint32_t run, uint64_t id) {
  const std::pair<uint32_t, uint64_t> key(run, id);
  if (const auto known = structures_.find(key); known != structures_.end()) return &known->second->summary;
  auto structure = store_->definitions().Structure(run, id);
  if (!structure.ok()) return nullptr;
  return &structures_.emplace(key, *std::move(structure)).first->second->summary;
}

absl::Status Tiler::WriteSet(const Notes& notes) {
  if (structures_.size() > kMaxStructures) structures_.clear();
  uint64_t deletions;
  {
    absl::MutexLock lock(&store_->steps().tiling_mutex());
    deletions = store_->steps().deletions();
  }
  const StepKey& first = notes[0].step;
  auto number = NextSet(first);
  if (!number.ok()) return number.status();
  Set set;
  set.number = *number;
  for (const Note& note : notes) {
    if (absl::Status status = AddPass(note, set); !status.ok()) return Failed(notes, status);
  }
  if (absl::Status status = AddTiles(first, set); !status.ok()) return Failed(notes, status);
  AddPlaces(notes, set);
  {
    absl::MutexLock lock(&store_->steps().tiling_mutex());
    // Some step was deleted or moved meanwhile, perhaps one of these.
    if (store_->steps().deletions() != deletions) return Failed(notes, Changed());
    if (absl::Status status = store_->database().Write(set.changes); !status.ok()) {
      Forget(notes);
      return status;
    }
  }
  ++next_set_[{first.run, first.epoch}];
  absl::MutexLock counting(&mu_);
  ++counters_.sets;
  counters_.passes += notes.size();
  counters_.row_bytes += set.row_bytes;
  counters_.tile_bytes += set.row.bytes();
  return absl::OkStatus();
}

absl::Status Tiler::AddPass(const Note& note, Set& set) {
  Rows rows;
  std::string prefix = RowKey::StepPrefix(note.step.run, note.step.rank, note.step.step);
  AppendU32(prefix, note.token);
  absl::Status status = ForEachPass(note.step, prefix, [&](uint32_t, const Rows& found) { rows = found; });
  if (!status.ok()) return status;
  std::vector<const v1::Block*> blocks;
  storage::TileSetRow::Pass& pass = *set.row.add_passes();
  pass.set_step(note.step.step);
  pass.set_token(note.token);
  for (const Row& each : rows) {
    blocks.push_back(each.block.get());
    pass.add_blocks(each.key.block);
    pass.add_fragments(static_cast<uint32_t>(each.block->structure_size()));
    set.changes.Delete(Family::kRows, each.key.Encode());
    set.row_bytes += each.bytes;
  }
  auto made = TilePass::Make(blocks, [&](uint64_t id) { return Structure(note.step.run, id); });
  if (!made.ok()) return made.status();
  if (made->signature() != note.signature) return Changed();  // rows came or went
  pass.set_layout(LayoutHash(blocks));
  set.passes.push_back(*std::move(made));
  set.read.push_back(std::move(rows));

  const std::string tiled_key = note.step.Encode(MetaSpace::kTiled);
  if (!set.tiled.contains(tiled_key)) {
    auto known = store_->database().Find<storage::TiledRow>(tiled_key);
    if (!known.ok()) return known.status();
    set.tiled[tiled_key] = known->value_or(storage::TiledRow());
  }
  storage::TiledRow::Piece& piece = *set.tiled[tiled_key].add_pieces();
  piece.set_set(set.number);
  piece.set_pass(static_cast<uint32_t>(set.row.passes_size() - 1));
  return absl::OkStatus();
}

absl::Status Tiler::AddTiles(const StepKey& session, Set& set) {
  const auto structure = [&](uint64_t id) { return Structure(session.run, id); };
  const auto fragments = static_cast<uint32_t>(set.passes[0].fragments());
  for (uint32_t at = 0; at < fragments;) {
    uint32_t count = 0;
    for (uint32_t leaves = 0; at + count < fragments && count < 4 * TileKey::kEntries; ++count) {
      leaves += structure(set.passes[0].structure(at + count))->leaves;
      if (leaves > TileKey::kEntries && count > 0) break;
    }
    std::string tile = EncodeTile(set.passes, at, count, structure);
    set.row.set_bytes(set.row.bytes() + tile.size());
    set.row.add_tile_fragments(count);
    const auto number = static_cast<uint32_t>(set.row.tile_fragments_size() - 1);
    const TileKey key{session.run, session.rank, session.epoch, set.number, number};
    set.changes.Put(Family::kTiles, key.Encode(), std::move(tile));
    at += count;
    if (stopping()) return Changed();
  }
  set.changes.PutMeta(TileSetKey(session.run, session.rank, session.epoch, set.number), set.row);
  return absl::OkStatus();
}

void Tiler::AddPlaces(const Notes& notes, Set& set) {
  for (const auto& [key, places] : set.tiled) set.changes.PutMeta(key, places);
  for (const Note& note : notes) {
    auto known = notes_.find(note.step.Encode());
    if (known == notes_.end()) continue;
    std::erase_if(known->second, [&](const Note& each) { return each.token == note.token; });
    if (known->second.empty()) set.changes.Delete(Family::kMeta, note.step.Encode(MetaSpace::kUntiled));
  }
}

absl::Status Tiler::Failed(const Notes& notes, const absl::Status& status) {
  if (absl::IsAborted(status)) Forget(notes);
  return status;
}

void Tiler::Forget(const Notes& notes) {
  for (const Note& note : notes) notes_.erase(note.step.Encode());
}

absl::Status Tiler::GiveUp(const std::vector<StepKey>& steps) {
  ChangeSet changes;
  for (const StepKey& step : steps) changes.Delete(Family::kMeta, step.Encode(MetaSpace::kUntiled));
  return store_->database().Write(changes);
}

}  // namespace msprobe::server
