#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/ingest.pb.h"
#include "server/format/storage/key.h"
#include "server/format/storage/storage.pb.h"
#include "server/format/storage/structure_summary.h"
#include "server/store/record_source.h"

namespace msprobe::server {

// The parts of one step of one session as they are at rest, in this store or in another server's.
// Threads: any. Must not outlive the store or the connection that it came from.
class BlockSource {
 public:
  virtual ~BlockSource() = default;

  virtual const storage::StepRow& row() const = 0;
  // With the settings that the step was captured with.
  virtual const v1::Hello& hello() const = 0;
  // In order of arrival.
  virtual absl::StatusOr<std::vector<std::shared_ptr<const v1::Block>>> Blocks() const = 0;
  // NotFound: the run has no definition of that id. DataLoss: it is something else.
  virtual absl::StatusOr<SharedStructure> Structure(uint64_t id) const = 0;
  // Innermost frame first. Errors as Structure.
  virtual absl::StatusOr<std::vector<v1::Frame>> Stack(uint64_t id) const = 0;
  // As Payloads::Read and Payloads::ReadRange.
  virtual absl::Status ReadPayload(std::string_view hash,
                                   absl::FunctionRef<absl::Status(std::string_view chunk)> visit) const = 0;
  virtual absl::Status ReadPayloadRange(
      std::string_view hash, uint64_t offset, uint64_t size,
      absl::FunctionRef<absl::Status(uint64_t offset, std::string_view chunk)> visit) const = 0;
  virtual absl::StatusOr<std::vector<v1::Marker::Fault>> Faults() const = 0;
};

// The records that blocks hold. Keeps the blocks of the step in memory; records are decoded one at a time.
absl::StatusOr<std::unique_ptr<RecordSource>> RecordsOf(std::unique_ptr<BlockSource> source, const std::string& run,
                                                        const StepKey& key);

}  // namespace msprobe::server
