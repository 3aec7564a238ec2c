#include "server/ingest/session/batch_staging.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "server/format/cat.h"
#include "server/format/storage/block_columns.h"
#include "server/ingest/session/leaf_numbers.h"
#include "server/ingest/session/record_identity.h"

namespace msprobe::server {
namespace {

absl::Status At(std::string_view what, int index, const absl::Status& status) {
  return absl::Status(status.code(), Cat(what, " ", index, ": ", status.message()));
}

// The batches of a session whose scalars become tiles together.
constexpr uint32_t kScalarRows = 256;
// Of a batch, the names of its points together: each point has a copy.
constexpr size_t kMostScalarNames = size_t{64} << 20;

}  // namespace

absl::Status BatchStaging::Stage(const v1::Batch& batch) {
  staged_.session = state_.row;
  staged_.session.set_watermark(batch.batch_sequence());
  for (int i = 0; i < batch.definitions_size(); ++i) {
    absl::Status status = StageDefinition(batch.definitions(i));
    if (!status.ok()) return At("definition", i, status);
  }
  for (int i = 0; i < batch.items_size(); ++i) {
    if (staged_.session.state() == storage::SessionRow::ENDED) {
      return absl::InvalidArgumentError(Cat("item ", i, " comes after session_end"));
    }
    const v1::Item& item = batch.items(i);
    absl::Status status;
    if (item.has_block()) {
      status = StageBlock(item.block());
    } else if (item.has_marker()) {
      status = StageMarker(item.marker());
    } else if (item.has_scalars()) {
      status = StageScalars(item.scalars());
    } else {
      status = absl::InvalidArgumentError("neither a block nor a marker nor scalars");
    }
    if (!status.ok()) return At("item", i, status);
  }
  return absl::OkStatus();
}

absl::Status BatchStaging::StageDefinition(const v1::Definition& definition) {
  const bool is_structure = definition.has_structure();
  if (!is_structure && !definition.has_stack()) {
    return absl::InvalidArgumentError("neither a structure nor a stack");
  }
  const std::string& bytes = is_structure ? definition.structure() : definition.stack();
  if (const uint64_t id = DefinitionId(bytes); id != definition.id()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("its id is %016x, the hash of its bytes is %016x", definition.id(), id));
  }
  if (is_structure) {
    if (state_.definitions.Structure(definition.id()) != nullptr) return absl::OkStatus();
    v1::Structure structure;
    if (!structure.ParseFromString(bytes)) return absl::InvalidArgumentError("its bytes are not a Structure");
    auto summary = Summarize(structure);
    if (!summary.ok()) return summary.status();
    staged_.structures[definition.id()] = std::make_unique<StructureSummary>(*std::move(summary));
  } else {
    if (state_.definitions.HasStack(definition.id())) return absl::OkStatus();
    if (!v1::Stack().ParseFromString(bytes)) return absl::InvalidArgumentError("its bytes are not a Stack");
    staged_.stacks.insert(definition.id());
  }
  staged_.changes.Put(Family::kMeta, DefinitionKey(state_.row.run(), definition.id()),
                      EncodeDefinition(is_structure ? DefinitionKind::kStructure : DefinitionKind::kStack, bytes));
  return absl::OkStatus();
}

absl::StatusOr<storage::StepRow*> BatchStaging::StagedStep(uint32_t step, bool create) {
  if (auto found = staged_.steps.find(step); found != staged_.steps.end()) return &found->second;
  if (!staged_.discarded.contains(step)) {
    if (auto open = state_.steps.find(step); open != state_.steps.end())
      return &(staged_.steps[step] = open->second.row);
    auto stored = store_.database().Find<storage::StepRow>(state_.KeyOf(step).Encode());
    if (!stored.ok()) return stored.status();
    if (stored->has_value()) return &(staged_.steps[step] = **stored);
  }
  if (!create) return nullptr;
  storage::StepRow& row = staged_.steps[step];
  if (staged_.session.has_first_settings()) *row.mutable_settings() = staged_.session.hello().settings();
  return &row;
}

const StructureSummary* BatchStaging::FindStructure(uint64_t id) const {
  auto found = staged_.structures.find(id);
  return found != staged_.structures.end() ? found->second.get() : state_.definitions.Structure(id);
}

absl::StatusOr<std::vector<FragmentColumns>> BatchStaging::Check(const v1::Block& block) const {
  return CheckBlock(
      block, [&](uint64_t id) { return FindStructure(id); },
      [&](uint64_t id) { return staged_.stacks.contains(id) || state_.definitions.HasStack(id); });
}

absl::Status BatchStaging::StageScalars(const v1::Block& block) {
  auto columns = Check(block);
  if (!columns.ok()) return columns.status();
  NonFiniteByLeaf non_finite;
  for (const v1::NonFinite& leaf : block.non_finite()) non_finite.emplace(leaf.leaf(), &leaf);
  for (int i = 0; i < block.structure_size(); ++i) {
    const StructureSummary& structure = *FindStructure(block.structures(static_cast<int>(block.structure(i))));
    if (structure.kind != v1::RECORD_SCALARS) {
      return absl::InvalidArgumentError(Cat("a record, ", structure.name, ", among scalars"));
    }
    FragmentColumns next = (*columns)[static_cast<size_t>(i)];
    if (structure.name == core::kResponse) {
      StageResponse(block, structure, next);
      continue;
    }
    for (const StructureSummary::Scalar& scalar : structure.scalars) {
      staged_.scalar_names += scalar.name.size();
      if (staged_.scalar_names > kMostScalarNames) {
        return absl::InvalidArgumentError(
            Cat("the names of its scalars, once for each point, have more than ", kMostScalarNames, " bytes"));
      }
      if (!scalar.is_tensor) {
        staged_.scalars.push_back({scalar.name, block.step(), block.floats(static_cast<int>(next.floats++))});
        continue;
      }
      const uint32_t flags = block.leaf_flags(static_cast<int>(next.leaf));
      if (!structure.statistics.empty()) {
        const LeafNumbers numbers = NumbersOf(block, non_finite, next);
        for (const std::string& statistic : structure.statistics) {
          const auto value = numbers.Named(statistic);
          if (!value.has_value()) continue;
          staged_.scalar_names += scalar.name.size() + statistic.size() + 1;
          staged_.scalars.push_back({Cat(scalar.name, ":", statistic), block.step(), *value});
        }
        TakeLeaf(flags, next);
        continue;
      }
      // A tensor without numbers (its device failed, say) is no point.
      if (auto value = LeafScalar(block, non_finite, next); value.has_value()) {
        staged_.scalars.push_back({scalar.name, block.step(), *value});
      }
      TakeLeaf(flags, next);
    }
  }
  return absl::OkStatus();
}

void BatchStaging::StageResponse(const v1::Block& block, const StructureSummary& structure,
                                 const FragmentColumns& columns) {
  const std::string& request = block.strings(static_cast<int>(columns.strings));
  if (request.size() > kLongestSeries) return;
  ResponseToken& response = staged_.responses.emplace_back();
  response.request = request;
  response.step = block.step();
  if (structure.integers == 0) return;
  core::SampledToken& token = response.token.emplace();
  token.id = block.integers(static_cast<int>(columns.integers));
  token.has_logprobs = structure.floats != 0;
  if (!token.has_logprobs) return;
  token.top1 = block.floats(static_cast<int>(columns.floats));
  token.mass = block.floats(static_cast<int>(columns.floats) + 1);
}

absl::Status BatchStaging::StageBlock(const v1::Block& block) {
  auto columns = Check(block);
  if (!columns.ok()) return columns.status();
  auto found = StagedStep(block.step(), true);
  if (!found.ok()) return found.status();
  storage::StepRow& row = **found;
  if (row.ended()) {
    return absl::InvalidArgumentError(Cat("a block of step ", block.step(), ", which step_end has ended"));
  }

  auto open = staged_.discarded.contains(block.step()) ? state_.steps.end() : state_.steps.find(block.step());
  absl::flat_hash_set<uint64_t>& fresh = staged_.records[block.step()];
  for (int i = 0; i < block.structure_size(); ++i) {
    if (block.fragment_flags(i) & v1::FRAGMENT_CONSTRUCT_ONLY) continue;
    const StructureSummary& structure = *FindStructure(block.structures(static_cast<int>(block.structure(i))));
    if (structure.kind == v1::RECORD_SCALARS) return absl::InvalidArgumentError("scalars among the records of a block");
    row.set_tensors(row.tensors() + structure.leaves);
    const uint64_t identity = RecordIdentity(structure, block.count(i));
    if (open != state_.steps.end() && open->second.records.contains(identity)) continue;
    if (!fresh.insert(identity).second) continue;
    row.set_records(row.records() + 1);
    ++staged_.new_records;
  }
  for (const v1::NonFinite& leaf : block.non_finite()) {
    if (leaf.nan_count() > 0) ++staged_.nan_tensors, row.set_nan_tensors(row.nan_tensors() + 1);
    if (leaf.positive_inf_count() + leaf.negative_inf_count() > 0) {
      ++staged_.inf_tensors, row.set_inf_tensors(row.inf_tensors() + 1);
    }
  }
  for (const v1::PayloadRef& payload : block.payload()) {
    row.set_payload_bytes(row.payload_bytes() + payload.size());
    if (absl::Status status = StagePayload(payload, block.step()); !status.ok()) return status;
  }
  std::string value = EncodeValue(block);
  row.set_row_bytes(row.row_bytes() + RowKey::kBytes + value.size());
  row.set_tokens(std::max(row.tokens(), block.token() + 1));
  staged_.rows.push_back({block.step(), block.token(), row.next_block(), std::move(value)});
  row.set_next_block(row.next_block() + 1);
  return absl::OkStatus();
}

absl::Status BatchStaging::StagePayload(const v1::PayloadRef& payload, uint32_t step) {
  const std::string& hash = payload.hash();
  if (staged_.referenced.insert(hash).second) {
    storage::ReferenceRow reference;
    reference.set_size(payload.size());
    staged_.changes.PutMeta(ReferenceKey(state_.row.run(), hash), reference);
    staged_.changes.Put(Family::kMeta, ReferrerKey(hash, state_.row.run()), "");
  }
  if (state_.row.holds_payloads()) Payloads::AddHold(state_.row, step, hash, staged_.changes);
  uint64_t known_size = payload.size();
  storage::PendingRow* pending = nullptr;
  if (auto found = staged_.pending.find(hash); found != staged_.pending.end()) {
    pending = &found->second;
    known_size = pending->size();
  } else if (auto owed = state_.pending.find(hash); owed != state_.pending.end()) {
    pending = &(staged_.pending[hash] = owed->second.row);
    known_size = pending->size();
  } else {
    auto stored = store_.database().Find<storage::PayloadRow>(PayloadKey(hash));
    if (!stored.ok()) return stored.status();
    if (stored->has_value()) {
      known_size = (*stored)->size();
      if (std::find(staged_.stored.begin(), staged_.stored.end(), hash) == staged_.stored.end()) {
        staged_.stored.push_back(hash);
      }
    } else {
      pending = &staged_.pending[hash];
      pending->set_size(payload.size());
      staged_.wanted.push_back(hash);
    }
  }
  if (known_size != payload.size()) {
    return absl::InvalidArgumentError(
        Cat("payload ", Hex(hash), " is announced with ", payload.size(), " bytes and known with ", known_size));
  }
  if (pending != nullptr && std::count(pending->steps().begin(), pending->steps().end(), step) == 0) {
    pending->add_steps(step);
  }
  return absl::OkStatus();
}

absl::Status BatchStaging::StageMarker(const v1::Marker& marker) {
  switch (marker.kind_case()) {
    case v1::Marker::kStepEnd: {
      // A step of which nothing was captured leaves no trace.
      auto row = StagedStep(marker.step_end().step(), false);
      if (!row.ok() || *row == nullptr) return row.status();
      (*row)->set_ended(true);
      (*row)->set_clean(true);
      return absl::OkStatus();
    }
    case v1::Marker::kGap: {
      auto row = StagedStep(marker.gap().step(), true);
      if (!row.ok()) return row.status();
      *(*row)->add_gaps() = marker.gap();
      staged_.gaps.push_back(marker.gap());
      return absl::OkStatus();
    }
    case v1::Marker::kRankKnown: {
      const v1::Rank& rank = marker.rank_known().rank();
      if (!RankFits(rank)) {
        return absl::InvalidArgumentError(Cat("rank_known.rank.number is ", rank.number(), ", at most 2147483647"));
      }
      *staged_.session.mutable_hello()->mutable_rank() = rank;
      return absl::OkStatus();
    }
    case v1::Marker::kSettingsChanged:
      if (!staged_.session.has_first_settings()) {
        *staged_.session.mutable_first_settings() = staged_.session.hello().settings();
      }
      *staged_.session.mutable_hello()->mutable_settings() = marker.settings_changed().settings();
      return absl::OkStatus();
    case v1::Marker::kExportOpenStep:
      staged_.export_requests.push_back(marker.export_open_step().step());
      return absl::OkStatus();
    case v1::Marker::kFault: {
      auto row = StagedStep(marker.fault().step(), true);
      if (!row.ok()) return row.status();
      staged_.faults.push_back({marker.fault().step(), (*row)->faults(), marker.fault()});
      (*row)->set_faults((*row)->faults() + 1);
      return absl::OkStatus();
    }
    case v1::Marker::kTokenSpan: {
      auto row = StagedStep(marker.token_span().step(), true);
      if (!row.ok()) return row.status();
      *(*row)->add_token_spans() = marker.token_span();
      return absl::OkStatus();
    }
    case v1::Marker::kStepDiscarded:
      Discard(marker.step_discarded().step());
      return absl::OkStatus();
    case v1::Marker::kSessionEnd:
      return EndSession(marker.session_end().clean());
    case v1::Marker::KIND_NOT_SET:
      return absl::InvalidArgumentError("a marker of unknown kind");
  }
  return absl::OkStatus();
}

void BatchStaging::Discard(uint32_t step) {
  staged_.discarded.insert(step);
  staged_.steps.erase(step);
  staged_.records.erase(step);
  std::erase_if(staged_.rows, [&](const StagedBatch::Row& row) { return row.step == step; });
  std::erase_if(staged_.faults, [&](const StagedBatch::Fault& fault) { return fault.step == step; });
}

absl::Status BatchStaging::EndSession(bool clean) {
  staged_.session.set_state(storage::SessionRow::ENDED);
  for (const auto& [step, open] : state_.steps) {
    if (auto row = StagedStep(step, false); !row.ok()) return row.status();
  }
  for (auto& [step, row] : staged_.steps) {
    if (row.ended()) continue;
    row.set_ended(true);
    row.set_clean(clean);
  }
  return absl::OkStatus();
}

bool BatchStaging::moves_steps() const {
  return !staged_.discarded.empty() || RankCode(state_.row.hello().rank()) != RankCode(staged_.session.hello().rank());
}

absl::Status BatchStaging::Finish() {
  for (uint32_t step : staged_.discarded) {
    absl::Status status = store_.steps().AddDeletion(state_.KeyOf(step), staged_.changes);
    if (!status.ok()) return status;
  }
  const v1::Rank& from = state_.row.hello().rank();
  const v1::Rank& to = staged_.session.hello().rank();
  if (RankCode(from) != RankCode(to)) {
    if (absl::Status status = FinishRankMove(from, to); !status.ok()) return status;
  }
  StepKey key = state_.KeyOf(0);
  key.rank = RankCode(to);
  FinishBlocks(key);
  FinishSteps(key);
  if (absl::Status status = FinishScalars(); !status.ok()) return status;
  FinishSession();
  return absl::OkStatus();
}

absl::Status BatchStaging::FinishRankMove(const v1::Rank& from, const v1::Rank& to) {
  ChangeSet& changes = staged_.changes;
  const uint32_t run = state_.row.run(), epoch = state_.row.epoch();
  staged_.rank_change = {from, to};
  absl::Status status = store_.steps().AddRankMove(run, epoch, RankCode(from), RankCode(to), changes);
  if (!status.ok()) return status;
  // What was discarded must not come back with the move.
  for (uint32_t step : staged_.discarded) {
    const StepKey moved{run, RankCode(to), step, epoch};
    status = store_.database().ForEach(Family::kRows, RowKey::StepPrefix(run, RankCode(from), step),
                                       [&](std::string_view key, std::string_view) {
                                         auto row = RowKey::Decode(key);
                                         if (row.ok() && row->epoch == epoch) {
                                           row->rank = moved.rank;
                                           changes.Delete(Family::kRows, row->Encode());
                                         }
                                         return row.status();
                                       });
    if (!status.ok()) return status;
    for (MetaSpace space : {MetaSpace::kStep, MetaSpace::kUntiled, MetaSpace::kTiled}) {
      changes.Delete(Family::kMeta, moved.Encode(space));
    }
  }
  return absl::OkStatus();
}

void BatchStaging::FinishBlocks(StepKey key) {
  ChangeSet& changes = staged_.changes;
  for (StagedBatch::Row& row : staged_.rows) {
    changes.Put(Family::kRows, RowKey{key.run, key.rank, row.step, row.token, key.epoch, row.block}.Encode(),
                std::move(row.value));
  }
  for (StagedBatch::Fault& fault : staged_.faults) {
    key.step = fault.step;
    changes.PutMeta(FaultKey(key, fault.n), fault.fault);
  }
  for (const auto& [hash, pending] : staged_.pending) changes.PutMeta(PendingKey(state_.row.session(), hash), pending);
}

bool BatchStaging::LacksPayloads(uint32_t step) const {
  bool lacks = !staged_.discarded.contains(step) && state_.HasPending(step);
  for (const auto& [hash, pending] : staged_.pending) {
    lacks |= std::count(pending.steps().begin(), pending.steps().end(), step) > 0;
  }
  return lacks;
}

void BatchStaging::FinishSteps(StepKey key) {
  for (auto& [step, row] : staged_.steps) {
    key.step = step;
    if (row.ended() && row.state() == v1::StepSummary::OPEN) {
      if (!row.clean()) {
        row.set_state(v1::StepSummary::INCOMPLETE);
      } else if (!LacksPayloads(step)) {
        row.set_state(v1::StepSummary::COMPLETE);
      }
      if (row.state() != v1::StepSummary::OPEN) {
        staged_.finished.emplace_back(step, row.state());
        staged_.changes.Put(Family::kMeta, key.Encode(MetaSpace::kUntiled), "");
      }
    }
    staged_.changes.PutMeta(key.Encode(), row);
  }
}

absl::Status BatchStaging::FinishScalars() {
  const uint32_t run = state_.row.run(), epoch = state_.row.epoch();
  const Scalars& scalars = store_.scalars();
  staged_.scalar_rows = state_.scalar_rows;
  std::optional<storage::ScalarsRow> row;
  if (!staged_.scalars.empty()) {
    row.emplace();
    absl::flat_hash_set<uint64_t> fresh;
    for (const ScalarPoint& point : staged_.scalars) {
      row->add_step(point.step);
      const uint64_t series = Scalars::IdOf(point.series);
      if (!state_.series.contains(series) && fresh.insert(series).second) {
        Scalars::AddName(run, series, point.series, staged_.changes);
        staged_.series.push_back(series);
      }
      row->add_series(series);
      row->add_value(point.value);
    }
    ++staged_.scalar_rows;
  }
  const uint64_t batch = staged_.session.watermark();
  const bool ends = staged_.session.state() == storage::SessionRow::ENDED;
  if (staged_.scalar_rows < kScalarRows && !(ends && staged_.scalar_rows > 0)) {
    if (row.has_value()) staged_.changes.PutMeta(ScalarsKey(run, epoch, batch), *row);
    return absl::OkStatus();
  }
  staged_.scalar_rows = 0;
  return scalars.AddTiling(run, epoch, row.has_value() ? &*row : nullptr, batch, staged_.changes);
}

void BatchStaging::FinishSession() {
  std::set<uint32_t> open;
  for (const auto& [step, known] : state_.steps) open.insert(step);
  for (uint32_t step : staged_.discarded) open.erase(step);
  for (const auto& [step, row] : staged_.steps) {
    if (row.state() == v1::StepSummary::OPEN) {
      open.insert(step);
    } else {
      open.erase(step);
    }
  }
  staged_.session.mutable_open_steps()->Assign(open.begin(), open.end());
  staged_.session.set_knows_open_steps(true);
  staged_.changes.PutMeta(SessionKey(state_.row.session()), staged_.session);
}

void BatchStaging::Adopt() {
  state_.row = std::move(staged_.session);
  state_.scalar_rows = staged_.scalar_rows;
  state_.series.insert(staged_.series.begin(), staged_.series.end());
  for (uint32_t step : staged_.discarded) state_.steps.erase(step);
  for (auto& [step, row] : staged_.steps) {
    if (row.state() != v1::StepSummary::OPEN) {
      state_.steps.erase(step);
      continue;
    }
    SessionState::OpenStep& open = state_.steps[step];
    open.row = std::move(row);
    open.records.merge(staged_.records[step]);
  }
  state_.definitions.Add(staged_.structures, staged_.stacks);
  for (auto& [hash, pending] : staged_.pending) {
    const auto [owed, added] = state_.pending.try_emplace(hash);
    if (added) owed->second.begun = false;
    owed->second.row = std::move(pending);
  }
}

void BatchStaging::Count(Metrics& metrics) const {
  const std::string& run = state_.row.hello().run();
  const std::string rank = RankName(state_.row.hello().rank());
  metrics.Add(Metric::kIngestRecords, static_cast<double>(staged_.new_records));
  if (staged_.nan_tensors > 0) metrics.Add(Metric::kNanTensors, static_cast<double>(staged_.nan_tensors), {run, rank});
  if (staged_.inf_tensors > 0) metrics.Add(Metric::kInfTensors, static_cast<double>(staged_.inf_tensors), {run, rank});
  for (const v1::Marker::Gap& gap : staged_.gaps) {
    const std::string reason = v1::Marker::Gap::Reason_IsValid(gap.reason())
                                   ? absl::AsciiStrToLower(v1::Marker::Gap::Reason_Name(gap.reason()))
                                   : "unknown";
    metrics.Add(Metric::kGaps, static_cast<double>(gap.fragments()), {reason});
  }
}

}  // namespace msprobe::server
