// How a LiveSession checks and stages a batch.

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "server/format/cat.h"
#include "server/format/storage/block_columns.h"
#include "server/ingest/live_session.h"
#include "server/ingest/record_identity.h"
#include "server/ingest/staged_batch.h"

namespace msprobe::server {
namespace {

absl::Status At(std::string_view what, int index, const absl::Status& status) {
  return absl::Status(status.code(), Cat(what, " ", index, ": ", status.message()));
}

}  // namespace

absl::Status LiveSession::Stage(const v1::Batch& batch, StagedBatch& staged) {
  staged.session = row_;
  staged.session.set_watermark(batch.batch_sequence());
  for (int i = 0; i < batch.definitions_size(); ++i) {
    absl::Status status = StageDefinition(batch.definitions(i), staged);
    if (!status.ok()) return At("definition", i, status);
  }
  for (int i = 0; i < batch.items_size(); ++i) {
    if (staged.session.state() == storage::SessionRow::ENDED) {
      return absl::InvalidArgumentError(Cat("item ", i, " comes after session_end"));
    }
    const v1::Item& item = batch.items(i);
    absl::Status status;
    if (item.has_block()) {
      status = StageBlock(item.block(), staged);
    } else if (item.has_marker()) {
      status = StageMarker(item.marker(), staged);
    } else {
      status = absl::InvalidArgumentError("neither a block nor a marker");
    }
    if (!status.ok()) return At("item", i, status);
  }
  return absl::OkStatus();
}

absl::Status LiveSession::StageDefinition(const v1::Definition& definition, StagedBatch& staged) {
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
    if (Structure(definition.id()) != nullptr) return absl::OkStatus();
    v1::Structure structure;
    if (!structure.ParseFromString(bytes)) return absl::InvalidArgumentError("its bytes are not a Structure");
    auto summary = Summarize(structure);
    if (!summary.ok()) return summary.status();
    staged.structures[definition.id()] = std::make_unique<StructureSummary>(*std::move(summary));
  } else {
    if (HasStack(definition.id())) return absl::OkStatus();
    if (!v1::Stack().ParseFromString(bytes)) return absl::InvalidArgumentError("its bytes are not a Stack");
    staged.stacks.insert(definition.id());
  }
  staged.changes.Put(Family::kMeta, DefinitionKey(row_.run(), definition.id()),
                     EncodeDefinition(is_structure ? DefinitionKind::kStructure : DefinitionKind::kStack, bytes));
  return absl::OkStatus();
}

absl::StatusOr<storage::StepRow*> LiveSession::StagedStep(uint32_t step, bool create, StagedBatch& staged) {
  if (auto found = staged.steps.find(step); found != staged.steps.end()) return &found->second;
  if (!staged.discarded.contains(step)) {
    if (auto open = steps_.find(step); open != steps_.end()) return &(staged.steps[step] = open->second.row);
    auto stored = context_.store->database().Find<storage::StepRow>(KeyOf(step).Encode());
    if (!stored.ok()) return stored.status();
    if (stored->has_value()) return &(staged.steps[step] = **stored);
  }
  if (!create) return nullptr;
  storage::StepRow& row = staged.steps[step];
  if (staged.session.has_first_settings()) *row.mutable_settings() = staged.session.hello().settings();
  return &row;
}

absl::Status LiveSession::StageBlock(const v1::Block& block, StagedBatch& staged) {
  auto columns = CheckBlock(
      block,
      [&](uint64_t id) ABSL_NO_THREAD_SAFETY_ANALYSIS -> const StructureSummary* {
        auto found = staged.structures.find(id);
        return found != staged.structures.end() ? found->second.get() : Structure(id);
      },
      [&](uint64_t id) ABSL_NO_THREAD_SAFETY_ANALYSIS { return staged.stacks.contains(id) || HasStack(id); });
  if (!columns.ok()) return columns.status();
  auto found = StagedStep(block.step(), true, staged);
  if (!found.ok()) return found.status();
  storage::StepRow& row = **found;
  if (row.ended()) {
    return absl::InvalidArgumentError(Cat("a block of step ", block.step(), ", which step_end has ended"));
  }

  auto summary = [&](int fragment) ABSL_NO_THREAD_SAFETY_ANALYSIS -> const StructureSummary& {
    const uint64_t id = block.structures(static_cast<int>(block.structure(fragment)));
    auto staged_structure = staged.structures.find(id);
    return staged_structure != staged.structures.end() ? *staged_structure->second : *Structure(id);
  };
  auto open = staged.discarded.contains(block.step()) ? steps_.end() : steps_.find(block.step());
  absl::flat_hash_set<uint64_t>& fresh = staged.records[block.step()];
  for (int i = 0; i < block.structure_size(); ++i) {
    if (block.fragment_flags(i) & v1::FRAGMENT_CONSTRUCT_ONLY) continue;
    const StructureSummary& structure = summary(i);
    row.set_tensors(row.tensors() + structure.leaves);
    const uint64_t identity = RecordIdentity(structure, block.count(i));
    if (open != steps_.end() && open->second.records.contains(identity)) continue;
    if (!fresh.insert(identity).second) continue;
    row.set_records(row.records() + 1);
    ++staged.new_records;
  }
  for (const v1::NonFinite& leaf : block.non_finite()) {
    if (leaf.nan_count() > 0) ++staged.nan_tensors, row.set_nan_tensors(row.nan_tensors() + 1);
    if (leaf.positive_inf_count() + leaf.negative_inf_count() > 0) {
      ++staged.inf_tensors, row.set_inf_tensors(row.inf_tensors() + 1);
    }
  }
  for (const v1::PayloadRef& payload : block.payload()) {
    row.set_payload_bytes(row.payload_bytes() + payload.size());
    if (absl::Status status = StagePayload(payload, block.step(), staged); !status.ok()) return status;
  }
  std::string value = EncodeValue(block);
  row.set_row_bytes(row.row_bytes() + RowKey::kBytes + value.size());
  row.set_tokens(std::max(row.tokens(), block.token() + 1));
  staged.rows.push_back({block.step(), block.token(), row.next_block(), std::move(value)});
  row.set_next_block(row.next_block() + 1);
  return absl::OkStatus();
}

absl::Status LiveSession::StagePayload(const v1::PayloadRef& payload, uint32_t step, StagedBatch& staged) {
  const std::string& hash = payload.hash();
  if (staged.referenced.insert(hash).second) {
    storage::ReferenceRow reference;
    reference.set_size(payload.size());
    staged.changes.PutMeta(ReferenceKey(row_.run(), hash), reference);
    staged.changes.Put(Family::kMeta, ReferrerKey(hash, row_.run()), "");
  }
  uint64_t known_size = payload.size();
  storage::PendingRow* pending = nullptr;
  if (auto found = staged.pending.find(hash); found != staged.pending.end()) {
    pending = &found->second;
    known_size = pending->size();
  } else if (auto owed = pending_.find(hash); owed != pending_.end()) {
    pending = &(staged.pending[hash] = owed->second.row);
    known_size = pending->size();
  } else {
    auto stored = context_.store->database().Find<storage::PayloadRow>(PayloadKey(hash));
    if (!stored.ok()) return stored.status();
    if (stored->has_value()) {
      known_size = (*stored)->size();
      if (std::find(staged.stored.begin(), staged.stored.end(), hash) == staged.stored.end()) {
        staged.stored.push_back(hash);
      }
    } else {
      pending = &staged.pending[hash];
      pending->set_size(payload.size());
      staged.wanted.push_back(hash);
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

absl::Status LiveSession::StageMarker(const v1::Marker& marker, StagedBatch& staged) {
  switch (marker.kind_case()) {
    case v1::Marker::kStepEnd: {
      // A step of which nothing was captured leaves no trace.
      auto row = StagedStep(marker.step_end().step(), false, staged);
      if (!row.ok() || *row == nullptr) return row.status();
      (*row)->set_ended(true);
      (*row)->set_clean(true);
      return absl::OkStatus();
    }
    case v1::Marker::kGap: {
      auto row = StagedStep(marker.gap().step(), true, staged);
      if (!row.ok()) return row.status();
      *(*row)->add_gaps() = marker.gap();
      staged.gaps.push_back(marker.gap());
      return absl::OkStatus();
    }
    case v1::Marker::kRankKnown: {
      const v1::Rank& rank = marker.rank_known().rank();
      if (!RankFits(rank)) {
        return absl::InvalidArgumentError(Cat("rank_known.rank.number is ", rank.number(), ", at most 2147483647"));
      }
      *staged.session.mutable_hello()->mutable_rank() = rank;
      return absl::OkStatus();
    }
    case v1::Marker::kSettingsChanged:
      if (!staged.session.has_first_settings()) {
        *staged.session.mutable_first_settings() = staged.session.hello().settings();
      }
      *staged.session.mutable_hello()->mutable_settings() = marker.settings_changed().settings();
      return absl::OkStatus();
    case v1::Marker::kExportOpenStep:
      staged.export_requests.push_back(marker.export_open_step().step());
      return absl::OkStatus();
    case v1::Marker::kFault: {
      auto row = StagedStep(marker.fault().step(), true, staged);
      if (!row.ok()) return row.status();
      staged.faults.push_back({marker.fault().step(), (*row)->faults(), marker.fault()});
      (*row)->set_faults((*row)->faults() + 1);
      return absl::OkStatus();
    }
    case v1::Marker::kTokenSpan: {
      auto row = StagedStep(marker.token_span().step(), true, staged);
      if (!row.ok()) return row.status();
      *(*row)->add_token_spans() = marker.token_span();
      return absl::OkStatus();
    }
    case v1::Marker::kStepDiscarded: {
      const uint32_t step = marker.step_discarded().step();
      staged.discarded.insert(step);
      staged.steps.erase(step);
      staged.records.erase(step);
      std::erase_if(staged.rows, [&](const StagedBatch::Row& row) { return row.step == step; });
      std::erase_if(staged.faults, [&](const StagedBatch::Fault& fault) { return fault.step == step; });
      return absl::OkStatus();
    }
    case v1::Marker::kSessionEnd: {
      staged.session.set_state(storage::SessionRow::ENDED);
      const bool clean = marker.session_end().clean();
      for (const auto& [step, open] : steps_) {
        if (auto row = StagedStep(step, false, staged); !row.ok()) return row.status();
      }
      for (auto& [step, row] : staged.steps) {
        if (row.ended()) continue;
        row.set_ended(true);
        row.set_clean(clean);
      }
      return absl::OkStatus();
    }
    case v1::Marker::KIND_NOT_SET:
      return absl::InvalidArgumentError("a marker of unknown kind");
  }
  return absl::OkStatus();
}

absl::Status LiveSession::FinishStaging(StagedBatch& staged) {
  ChangeSet& changes = staged.changes;
  for (uint32_t step : staged.discarded) {
    if (absl::Status status = context_.store->steps().AddDeletion(KeyOf(step), changes); !status.ok()) return status;
  }
  const v1::Rank& from = row_.hello().rank();
  const v1::Rank& to = staged.session.hello().rank();
  if (RankCode(from) != RankCode(to)) {
    staged.rank_change = {from, to};
    absl::Status status =
        context_.store->steps().AddRankMove(row_.run(), row_.epoch(), RankCode(from), RankCode(to), changes);
    if (!status.ok()) return status;
    // What was discarded must not come back with the move.
    for (uint32_t step : staged.discarded) {
      const StepKey moved{row_.run(), RankCode(to), step, row_.epoch()};
      status = context_.store->database().ForEach(Family::kRows, RowKey::StepPrefix(row_.run(), RankCode(from), step),
                                                  [&](std::string_view key, std::string_view)
                                                      ABSL_NO_THREAD_SAFETY_ANALYSIS {
                                                        auto row = RowKey::Decode(key);
                                                        if (row.ok() && row->epoch == row_.epoch()) {
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
  }

  StepKey key = KeyOf(0);
  key.rank = RankCode(to);
  for (StagedBatch::Row& row : staged.rows) {
    changes.Put(Family::kRows, RowKey{key.run, key.rank, row.step, row.token, key.epoch, row.block}.Encode(),
                std::move(row.value));
  }
  for (StagedBatch::Fault& fault : staged.faults) {
    key.step = fault.step;
    changes.PutMeta(FaultKey(key, fault.n), fault.fault);
  }
  for (const auto& [hash, pending] : staged.pending) changes.PutMeta(PendingKey(row_.session(), hash), pending);
  for (auto& [step, row] : staged.steps) {
    if (row.ended() && row.state() == v1::StepSummary::OPEN) {
      bool owed = !staged.discarded.contains(step) && HasPending(step);
      for (const auto& [hash, pending] : staged.pending) {
        owed |= std::count(pending.steps().begin(), pending.steps().end(), step) > 0;
      }
      if (!row.clean()) {
        row.set_state(v1::StepSummary::INCOMPLETE);
      } else if (!owed) {
        row.set_state(v1::StepSummary::COMPLETE);
      }
      if (row.state() != v1::StepSummary::OPEN) {
        staged.finished.emplace_back(step, row.state());
        key.step = step;
        changes.Put(Family::kMeta, key.Encode(MetaSpace::kUntiled), "");
      }
    }
    key.step = step;
    changes.PutMeta(key.Encode(), row);
  }
  std::set<uint32_t> open;
  for (const auto& [step, known] : steps_) open.insert(step);
  for (uint32_t step : staged.discarded) open.erase(step);
  for (const auto& [step, row] : staged.steps) {
    if (row.state() == v1::StepSummary::OPEN) {
      open.insert(step);
    } else {
      open.erase(step);
    }
  }
  staged.session.mutable_open_steps()->Assign(open.begin(), open.end());
  staged.session.set_knows_open_steps(true);
  changes.PutMeta(SessionKey(row_.session()), staged.session);
  return absl::OkStatus();
}

void LiveSession::Adopt(StagedBatch& staged) {
  row_ = std::move(staged.session);
  for (uint32_t step : staged.discarded) steps_.erase(step);
  for (auto& [step, row] : staged.steps) {
    if (row.state() != v1::StepSummary::OPEN) {
      steps_.erase(step);
      continue;
    }
    OpenStep& open = steps_[step];
    open.row = std::move(row);
    open.records.merge(staged.records[step]);
  }
  for (auto& [id, summary] : staged.structures) structures_.try_emplace(id, std::move(summary));
  stacks_.insert(staged.stacks.begin(), staged.stacks.end());
  for (auto& [hash, pending] : staged.pending) {
    const auto [owed, added] = pending_.try_emplace(hash);
    if (added) owed->second.begun = false;
    owed->second.row = std::move(pending);
  }

  const std::string& run = row_.hello().run();
  const std::string rank = RankName(row_.hello().rank());
  Metrics& metrics = *context_.metrics;
  metrics.Add(Metric::kIngestRecords, static_cast<double>(staged.new_records));
  if (staged.nan_tensors > 0) metrics.Add(Metric::kNanTensors, static_cast<double>(staged.nan_tensors), {run, rank});
  if (staged.inf_tensors > 0) metrics.Add(Metric::kInfTensors, static_cast<double>(staged.inf_tensors), {run, rank});
  for (const v1::Marker::Gap& gap : staged.gaps) {
    const std::string reason = v1::Marker::Gap::Reason_IsValid(gap.reason())
                                   ? absl::AsciiStrToLower(v1::Marker::Gap::Reason_Name(gap.reason()))
                                   : "unknown";
    metrics.Add(Metric::kGaps, static_cast<double>(gap.fragments()), {reason});
  }
}

}  // namespace msprobe::server
