#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "msprobe/v1/ingest.pb.h"
#include "server/importer/entry_parser.h"
#include "server/importer/record_name.h"

namespace msprobe::server {

// Packs imported records into the batches of one session: definitions once, then blocks of a bounded size.
// One thread at a time.
class BatchBuilder {
 public:
  // Takes each full batch; its status ends the import.
  using Send = absl::AnyInvocable<absl::Status(const v1::Batch&)>;

  // max_batch_bytes: the limit in the session's Welcome; 0 means that there is none.
  BatchBuilder(std::string session, size_t max_batch_bytes, Send send);

  // Gives the id by which records name the stack.
  uint64_t DefineStack(const v1::Stack& stack);

  // Adds a whole record, with both its ENTER and its EXIT. stack_id 0: it has no stack. An empty parent: null.
  // flags: FragmentFlag bits other than these two.
  absl::Status AddRecord(uint32_t step, uint64_t ordinal, const RecordName& name, ImportedFields fields, uint32_t flags,
                         uint64_t stack_id, const std::string& parent);
  absl::Status AddMarker(v1::Marker marker);
  // Sends the rest.
  absl::Status Flush();

 private:
  void CloseBlock();
  uint64_t Define(std::string bytes, bool is_stack);
  void AddLeaf(const ImportedLeaf& leaf);

  const std::string session_;
  const size_t target_bytes_;
  Send send_;
  uint64_t sequence_ = 0;
  v1::Batch batch_;
  size_t batch_bytes_ = 0;
  absl::flat_hash_set<uint64_t> defined_;

  // The open block, null between blocks, and the tables of what it has already.
  v1::Block* block_ = nullptr;
  uint64_t last_ordinal_ = 0;
  absl::flat_hash_map<uint64_t, uint32_t> structures_;
  absl::flat_hash_map<uint64_t, uint32_t> stacks_;
  absl::flat_hash_map<std::string, uint32_t> parents_;
  absl::flat_hash_map<std::vector<int64_t>, uint32_t> shapes_;
};

}  // namespace msprobe::server
