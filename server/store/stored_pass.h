#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/format/storage/repeated_pass.h"
#include "server/store/store.h"

namespace msprobe::server {

// For tests and benchmarks: writes what a session leaves of a run of repeated passes, without a session.

// Registers the only session of `run` for rank 0 and its definitions; ended, so that a tiler waits for nothing.
inline absl::Status PutRun(Store& store, const std::string& run, const std::vector<v1::Definition>& definitions,
                           const std::string& level) {
  v1::Hello hello;
  hello.set_session((run + std::string(16, '.')).substr(0, 16));
  hello.set_run(run);
  hello.mutable_settings()->set_task("statistics");
  hello.mutable_settings()->set_level(level);
  hello.mutable_settings()->set_framework("pytorch");
  auto session = store.catalogue().RegisterSession(hello);
  if (!session.ok()) return session.status();
  session->set_state(storage::SessionRow::ENDED);
  ChangeSet changes;
  changes.PutMeta(SessionKey(session->session()), *session);
  for (const v1::Definition& definition : definitions) {
    changes.Put(Family::kMeta, DefinitionKey(session->run(), definition.id()),
                definition.has_structure() ? EncodeDefinition(DefinitionKind::kStructure, definition.structure())
                                           : EncodeDefinition(DefinitionKind::kStack, definition.stack()));
  }
  return store.database().Write(changes);
}

inline absl::Status PutRun(Store& store, const std::string& run, const RepeatedPass& pass) {
  return PutRun(store, run, pass.definitions(), "L1");
}

// One finished step that came in these blocks.
inline absl::Status PutBlocks(Store& store, const std::vector<v1::Block>& blocks, const StepKey& key) {
  ChangeSet changes;
  storage::StepRow row;
  uint64_t leaves = 0;
  for (const v1::Block& block : blocks) {
    changes.Put(Family::kRows, RowKey{key.run, key.rank, key.step, block.token(), key.epoch, row.next_block()}.Encode(),
                EncodeValue(block));
    row.set_next_block(row.next_block() + 1);
    row.set_tokens(block.token() + 1);
    leaves += static_cast<uint64_t>(block.leaf_flags_size());
  }
  row.set_state(v1::StepSummary::COMPLETE);
  row.set_records(leaves / 2);
  row.set_tensors(leaves);
  row.set_ended(true);
  row.set_clean(true);
  changes.PutMeta(key.Encode(), row);
  changes.Put(Family::kMeta, key.Encode(MetaSpace::kUntiled), "");
  return store.database().Write(changes);
}

// One finished step of one pass.
inline absl::Status PutStep(Store& store, const RepeatedPass& pass, const StepKey& key,
                            uint32_t calls_a_block = 1'000'000) {
  return PutBlocks(store, pass.Blocks(key.step, 0, calls_a_block), key);
}

}  // namespace msprobe::server
