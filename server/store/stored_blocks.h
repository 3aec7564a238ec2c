#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/format/storage/key.h"
#include "server/format/storage/storage.pb.h"
#include "server/store/block_source.h"
#include "server/store/database.h"
#include "server/store/definitions.h"
#include "server/store/payloads.h"

namespace msprobe::server {

// The blocks of a step of one session, be they rows or tiles, in order of arrival.
absl::StatusOr<std::vector<std::shared_ptr<const v1::Block>>> ReadStoredBlocks(const Database& database,
                                                                               const StepKey& step);

// A step of one session as it lies in this store. Steps::OpenBlocks makes it.
class StoredBlocks final : public BlockSource {
 public:
  // The parts are borrowed. `session`: with the settings that the step was captured with.
  StoredBlocks(const Database* database, const Definitions* definitions, const Payloads* payloads, const StepKey& step,
               storage::StepRow row, storage::SessionRow session)
      : database_(database),
        definitions_(definitions),
        payloads_(payloads),
        step_(step),
        row_(std::move(row)),
        session_(std::move(session)) {}

  const storage::StepRow& row() const override { return row_; }
  const v1::Hello& hello() const override { return session_.hello(); }
  absl::StatusOr<std::vector<std::shared_ptr<const v1::Block>>> Blocks() const override {
    return ReadStoredBlocks(*database_, step_);
  }
  absl::StatusOr<SharedStructure> Structure(uint64_t id) const override {
    return definitions_->Structure(step_.run, id);
  }
  absl::StatusOr<std::vector<v1::Frame>> Stack(uint64_t id) const override {
    return definitions_->Stack(step_.run, id);
  }
  absl::Status ReadPayload(std::string_view hash,
                           absl::FunctionRef<absl::Status(std::string_view)> visit) const override {
    return payloads_->Read(hash, visit);
  }
  absl::Status ReadPayloadRange(std::string_view hash, uint64_t offset, uint64_t size,
                                absl::FunctionRef<absl::Status(uint64_t, std::string_view)> visit) const override {
    return payloads_->ReadRange(hash, offset, size, visit);
  }
  absl::StatusOr<std::vector<v1::Marker::Fault>> Faults() const override;

 private:
  const Database* const database_;
  const Definitions* const definitions_;
  const Payloads* const payloads_;
  const StepKey step_;
  const storage::StepRow row_;
  const storage::SessionRow session_;
};

}  // namespace msprobe::server
