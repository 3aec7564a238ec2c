#include "server/format/storage/record_assembler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "google/protobuf/arena.h"
#include "server/format/cat.h"
#include "server/format/storage/block_digest.h"
#include "server/format/storage/fragment_decoder.h"
#include "server/format/storage/record_pass.h"

namespace msprobe::server {
namespace {

constexpr size_t kArenaBytes = 32 << 10;

}  // namespace

RecordAssembler::RecordAssembler(uint32_t step, v1::Rank rank, StructureSource structures)
    : step_(step), rank_(std::move(rank)), source_(std::move(structures)) {}

absl::StatusOr<const RecordAssembler::KnownStructure*> RecordAssembler::Known(uint64_t id) {
  if (auto found = structures_.find(id); found != structures_.end()) return found->second.get();
  absl::StatusOr<SharedStructure> decoded = source_(id);
  if (!decoded.ok()) return decoded.status();
  const std::string& text = (*decoded)->summary.name;
  auto [name, inserted] = name_index_.try_emplace(text, static_cast<uint32_t>(names_.size()));
  if (inserted) names_.push_back(text);
  auto known = std::make_unique<const KnownStructure>(KnownStructure{*std::move(decoded), name->second});
  return structures_.emplace(id, std::move(known)).first->second.get();
}

absl::Status RecordAssembler::Add(std::shared_ptr<const v1::Block> block) {
  auto stored = std::make_unique<StoredBlock>();
  for (uint64_t id : block->structures()) {
    absl::StatusOr<const KnownStructure*> known = Known(id);
    if (!known.ok()) return known.status();
    stored->structures.push_back(*known);
  }
  const auto summary = [&](uint64_t id) { return &structures_.at(id)->decoded->summary; };
  auto columns = CheckBlock(*block, summary, [](uint64_t) { return true; });
  if (!columns.ok()) {
    return absl::DataLossError(Cat("a stored block of step ", step_, ": ", columns.status().message()));
  }
  if (absl::Status status = CheckDigests(*block, *columns, summary); !status.ok()) return status;
  for (int i = 0; i < block->non_finite_size(); ++i) stored->non_finite.emplace(block->non_finite(i).leaf(), i);
  stored->fragments = *std::move(columns);
  has_edges_ = has_edges_ || block->edge_size() != 0;
  stored->places = places_;
  places_.Skip(*block);
  stored->block = std::move(block);
  blocks_.push_back(std::move(stored));
  const uint32_t index = static_cast<uint32_t>(blocks_.size() - 1);
  for (uint32_t i = 0; i < blocks_.back()->fragments.size(); ++i) AddFragment(index, i);
  return absl::OkStatus();
}

void RecordAssembler::AddFragment(uint32_t block_index, uint32_t index) {
  const StoredBlock& stored = *blocks_[block_index];
  const KnownStructure& known = *stored.structures[stored.block->structure(static_cast<int>(index))];
  const RecordKey key{known.name, static_cast<uint8_t>(known.decoded->summary.kind),
                      static_cast<uint8_t>(known.decoded->summary.direction),
                      stored.block->count(static_cast<int>(index))};
  const uint32_t flags = stored.block->fragment_flags(static_cast<int>(index));
  const uint64_t ordinal = stored.fragments[index].ordinal;

  auto [found, inserted] = record_index_.try_emplace(key, static_cast<uint32_t>(records_.size()));
  if (inserted) records_.push_back(Entry{.key = key, .ordinal = ordinal});
  Entry& entry = records_[found->second];
  entry.flags |= flags;
  const bool moves = (flags & v1::FRAGMENT_UPDATE) ||
                     ((flags & v1::FRAGMENT_EXIT) && key.kind != v1::RECORD_API && key.kind != v1::RECORD_DEBUG);
  if (moves) {
    entry.ordinal = ordinal;
    entry.moved = true;
  } else if ((flags & v1::FRAGMENT_ENTER) && !entry.entered && !entry.moved) {
    entry.ordinal = ordinal;
  }
  entry.entered |= (flags & v1::FRAGMENT_ENTER) != 0;

  const int32_t added = static_cast<int32_t>(fragments_.size());
  fragments_.push_back({block_index, index, -1});
  if (entry.first < 0) {
    entry.first = added;
  } else {
    fragments_[entry.last].next = added;
  }
  entry.last = added;
}

std::string RecordAssembler::NameOf(const Entry& entry) const {
  const auto [name, pass] = SplitPass(names_[entry.key.name]);
  std::string full = FullName(name, static_cast<v1::RecordKind>(entry.key.kind),
                              static_cast<v1::Direction>(entry.key.direction), entry.key.count);
  return pass == 0 ? full : Cat(full, ".", pass);
}

void RecordAssembler::ForEachFragment(const Entry& entry,
                                      absl::FunctionRef<void(const StoredBlock& block, int fragment)> visit) const {
  for (bool entering : {true, false}) {
    for (int32_t at = entry.first; at >= 0; at = fragments_[at].next) {
      const StoredBlock& stored = *blocks_[fragments_[at].block];
      const int i = static_cast<int>(fragments_[at].index);
      if (((stored.block->fragment_flags(i) & v1::FRAGMENT_ENTER) != 0) == entering) visit(stored, i);
    }
  }
}

uint64_t RecordAssembler::BuildHead(const Entry& entry, v1::Record& record) const {
  record.set_full_name(NameOf(entry));
  record.set_kind(static_cast<v1::RecordKind>(entry.key.kind));
  record.set_direction(static_cast<v1::Direction>(entry.key.direction));
  record.set_step(step_);
  *record.mutable_rank() = rank_;
  record.set_ordinal(entry.ordinal);
  record.set_flags(entry.flags);
  record.set_token(blocks_[fragments_[entry.first].block]->block->token());
  uint64_t stack = 0;
  ForEachFragment(entry, [&](const StoredBlock& stored, int i) {
    if (stack == 0 && stored.block->stack(i) != 0) stack = stored.block->stacks(stored.block->stack(i) - 1);
    if (record.parent().empty() && stored.block->parent(i) != 0) {
      record.set_parent(stored.block->parents(stored.block->parent(i) - 1));
    }
  });
  return stack;
}

uint64_t RecordAssembler::Build(const Entry& entry, const Ends& ends, v1::Record& record) const {
  v1::Value& fields = *record.mutable_fields();
  fields.mutable_dict();
  ForEachFragment(entry, [&](const StoredBlock& stored, int i) {
    const bool is_first = fields.dict().entries().empty();
    v1::Value& addition = is_first ? fields : *v1::Value::default_instance().New(record.GetArena());
    DecodeFields(
        stored.structures[stored.block->structure(i)]->decoded->structure, *stored.block, stored.fragments[i],
        stored.non_finite,
        [&](uint64_t ordinal, uint32_t leaf, v1::Edge& edge) { NameProducer(ends, ordinal, leaf, edge); }, addition);
    if (!is_first) MergeValue(fields, std::move(addition));
  });
  return BuildHead(entry, record);
}

std::vector<uint32_t> RecordAssembler::Order() const {
  std::vector<uint32_t> order(records_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return records_[a].ordinal < records_[b].ordinal; });
  return order;
}

absl::Status RecordAssembler::ForEach(absl::FunctionRef<absl::Status(const v1::Record&, uint64_t)> visit) const {
  return ForEachWanted([](const Entry&) { return true; }, FindEnds(), visit);
}

absl::Status RecordAssembler::ForEachWithoutEdges(
    absl::FunctionRef<absl::Status(const v1::Record&, uint64_t)> visit) const {
  return ForEachWanted([](const Entry&) { return true; }, {}, visit);
}

absl::Status RecordAssembler::ForEachNamed(absl::FunctionRef<bool(const std::string&, uint32_t)> wanted,
                                           absl::FunctionRef<absl::Status(const v1::Record&, uint64_t)> visit) const {
  return ForEachWanted(
      [&](const Entry& entry) { return wanted(NameOf(entry), blocks_[fragments_[entry.first].block]->block->token()); },
      FindEnds(), visit);
}

absl::Status RecordAssembler::ForEachWanted(absl::FunctionRef<bool(const Entry& entry)> wanted, const Ends& ends,
                                            absl::FunctionRef<absl::Status(const v1::Record&, uint64_t)> visit) const {
  // A record is a tree of many small messages. An arena saves an allocation for each.
  std::vector<char> first_block(kArenaBytes);
  google::protobuf::Arena arena(first_block.data(), first_block.size());
  for (uint32_t index : Order()) {
    const Entry& entry = records_[index];
    if (!wanted(entry)) continue;
    arena.Reset();
    v1::Record& record = *v1::Record::default_instance().New(&arena);
    const uint64_t stack = Build(entry, ends, record);
    if (absl::Status status = visit(record, stack); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status RecordAssembler::ForEachHead(
    absl::FunctionRef<absl::Status(const v1::Record& head, uint64_t stack_id)> visit) const {
  v1::Record head;
  for (uint32_t index : Order()) {
    head.Clear();
    const uint64_t stack = BuildHead(records_[index], head);
    if (absl::Status status = visit(head, stack); !status.ok()) return status;
  }
  return absl::OkStatus();
}

void RecordAssembler::ForEachPlaced(
    absl::FunctionRef<void(const v1::Record& head, const PlacedValue& fields, uint64_t stack_fragment)> visit) const {
  v1::Record head;
  for (uint32_t index : Order()) {
    const Entry& entry = records_[index];
    head.Clear();
    BuildHead(entry, head);
    PlacedValue fields;
    fields.kind = PlacedValue::Kind::kDict;
    uint64_t stack_fragment = 0;
    ForEachFragment(entry, [&](const StoredBlock& stored, int i) {
      if (stack_fragment == 0 && stored.block->stack(i) != 0) {
        stack_fragment = stored.places.fragments + static_cast<uint64_t>(i) + 1;
      }
      const v1::Structure& structure = stored.structures[stored.block->structure(i)]->decoded->structure;
      MergePlaced(fields, PlaceFields(structure, *stored.block, stored.fragments[i], stored.places));
    });
    visit(head, fields, stack_fragment);
  }
}

RecordAssembler::Ends RecordAssembler::FindEnds() const {
  Ends ends;
  if (!has_edges_) return ends;
  ends.reserve(records_.size());
  for (uint32_t record = 0; record < records_.size(); ++record) {
    for (int32_t at = records_[record].first; at >= 0; at = fragments_[at].next) {
      const StoredBlock& stored = *blocks_[fragments_[at].block];
      const uint32_t i = fragments_[at].index;
      if ((stored.block->fragment_flags(static_cast<int>(i)) & v1::FRAGMENT_EXIT) == 0) continue;
      End& end = ends[stored.fragments[i].ordinal];
      if (at > end.fragment) end = {at, record};
    }
  }
  return ends;
}

void RecordAssembler::ForEachEnd(
    absl::FunctionRef<void(uint64_t ordinal, uint64_t first_leaf, uint32_t leaves)> visit) const {
  for (const auto& [ordinal, end] : FindEnds()) {
    const Fragment& fragment = fragments_[end.fragment];
    const StoredBlock& stored = *blocks_[fragment.block];
    const KnownStructure& known = *stored.structures[stored.block->structure(static_cast<int>(fragment.index))];
    visit(ordinal, stored.places.leaves + stored.fragments[fragment.index].leaf, known.decoded->summary.leaves);
  }
}

void RecordAssembler::NameProducer(const Ends& ends, uint64_t ordinal, uint32_t leaf, v1::Edge& edge) const {
  const auto found = ends.find(ordinal);
  if (found == ends.end()) return;
  const Fragment& fragment = fragments_[found->second.fragment];
  const StoredBlock& stored = *blocks_[fragment.block];
  const KnownStructure& known = *stored.structures[stored.block->structure(static_cast<int>(fragment.index))];
  const std::string path = TensorPath(known.decoded->structure, leaf);
  if (path.empty()) return;
  edge.set_record(NameOf(records_[found->second.record]));
  edge.set_tensor(Cat(edge.record(), ".", path));
}

bool RecordAssembler::has_payloads() const {
  return std::any_of(blocks_.begin(), blocks_.end(),
                     [](const auto& stored) { return stored->block->payload_size() != 0; });
}

}  // namespace msprobe::server
