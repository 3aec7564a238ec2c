#include "server/store/stored_step.h"

#include <algorithm>
#include <utility>

#include "server/format/cat.h"
#include "server/format/record_assembler.h"
#include "server/store/tiled_passes.h"

namespace msprobe::server {
namespace {

class StoredStep : public StepReader {
 public:
  StoredStep(const Store& store, const storage::RunRow& run, const StepKey& key, const storage::StepRow& row,
             storage::SessionRow session)
      : store_(store),
        run_(run.name()),
        key_(key),
        row_(row),
        session_(std::move(session)),
        rank_(RankOfCode(key.rank)),
        assembler_(key.step, rank_, [this](uint64_t id) { return StoredStructure(store_, key_.run, id); }) {}

  absl::Status Load() {
    auto blocks = ReadStoredBlocks(store_, key_);
    if (!blocks.ok()) return blocks.status();
    for (const auto& block : *blocks) {
      if (absl::Status status = assembler_.Add(*block); !status.ok()) return status;
    }
    std::string faults = FaultKey(key_, 0);
    faults.resize(faults.size() - 4);
    return store_.ForEach(Family::kMeta, faults, [&](std::string_view, std::string_view value) {
      auto fault = DecodeAs<v1::Marker::Fault>(value);
      if (fault.ok()) faults_.push_back(*std::move(fault));
      return fault.status();
    });
  }

  const std::string& run() const override { return run_; }
  uint32_t step() const override { return key_.step; }
  const v1::Rank& rank() const override { return rank_; }
  uint32_t epoch() const override { return key_.epoch; }
  State state() const override { return row_.state(); }
  const v1::CaptureSettings& settings() const override { return session_.hello().settings(); }
  const v1::Hello& hello() const override { return session_.hello(); }

  absl::Status ForEachRecord(absl::FunctionRef<absl::Status(const v1::Record&, uint64_t)> visit) override {
    return assembler_.ForEach(visit);
  }

  absl::Status ForEachRecordNamed(absl::FunctionRef<bool(const std::string&, uint32_t)> wanted,
                                  absl::FunctionRef<absl::Status(const v1::Record&, uint64_t)> visit) override {
    return assembler_.ForEachNamed(wanted, visit);
  }

  absl::Status ForEachRecordHead(absl::FunctionRef<absl::Status(const v1::Record&, uint64_t)> visit) override {
    return assembler_.ForEachHead(visit);
  }

  bool may_have_payloads() override { return assembler_.has_payloads(); }

  absl::StatusOr<std::vector<v1::Frame>> Stack(uint64_t stack_id) override {
    return StoredStack(store_, key_.run, stack_id);
  }

  absl::Status ReadPayload(std::string_view hash, absl::FunctionRef<absl::Status(std::string_view)> visit) override {
    return store_.ReadPayload(hash, visit);
  }

  std::vector<v1::Marker::Fault> faults() override { return faults_; }
  std::vector<v1::Marker::Gap> gaps() override { return {row_.gaps().begin(), row_.gaps().end()}; }

 private:
  const Store& store_;
  const std::string run_;
  const StepKey key_;
  const storage::StepRow row_;
  const storage::SessionRow session_;
  const v1::Rank rank_;
  RecordAssembler assembler_;
  std::vector<v1::Marker::Fault> faults_;
};

}  // namespace

absl::StatusOr<std::vector<std::shared_ptr<const v1::Block>>> ReadStoredBlocks(const Store& store, const StepKey& key) {
  NumberedBlocks numbered;
  absl::Status status = store.ForEach(Family::kRows, RowKey::StepPrefix(key.run, key.rank, key.step),
                                      [&](std::string_view row_key, std::string_view value) -> absl::Status {
                                        auto row = RowKey::Decode(row_key);
                                        if (!row.ok()) return row.status();
                                        if (row->epoch != key.epoch) return absl::OkStatus();
                                        numbered.emplace_back(row->block, std::make_shared<v1::Block>());
                                        return DecodeValue(value, *numbered.back().second);
                                      });
  if (!status.ok()) return status;
  // Rows first: what becomes tiles meanwhile is found twice rather than not at all.
  if (status = ReadTiledBlocks(store, key, numbered); !status.ok()) return status;
  // Keys are in order of token; fragments join in order of arrival.
  std::sort(numbered.begin(), numbered.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  numbered.erase(
      std::unique(numbered.begin(), numbered.end(), [](const auto& a, const auto& b) { return a.first == b.first; }),
      numbered.end());
  std::vector<std::shared_ptr<const v1::Block>> blocks;
  blocks.reserve(numbered.size());
  for (auto& [number, block] : numbered) blocks.push_back(std::move(block));
  return blocks;
}

absl::StatusOr<v1::Structure> StoredStructure(const Store& store, uint32_t run, uint64_t id) {
  auto definition = store.Definition(run, id);
  if (!definition.ok()) return definition.status();
  v1::Structure structure;
  if (definition->kind != DefinitionKind::kStructure || !structure.ParseFromString(definition->bytes)) {
    return absl::DataLossError("the definition of a structure does not parse as one");
  }
  return structure;
}

absl::StatusOr<std::vector<v1::Frame>> StoredStack(const Store& store, uint32_t run, uint64_t id) {
  auto definition = store.Definition(run, id);
  if (!definition.ok()) return definition.status();
  v1::Stack stack;
  if (definition->kind != DefinitionKind::kStack || !stack.ParseFromString(definition->bytes)) {
    return absl::DataLossError("the definition of a stack does not parse as one");
  }
  return std::vector<v1::Frame>(stack.frames().begin(), stack.frames().end());
}

absl::StatusOr<std::unique_ptr<StepReader>> OpenStoredStep(const Store& store, const storage::RunRow& run,
                                                           const StepKey& key, const storage::StepRow& row) {
  auto session = store.SessionOfEpoch(key.run, key.epoch);
  if (!session.ok()) return session.status();
  auto step = std::make_unique<StoredStep>(store, run, key, row, *std::move(session));
  if (absl::Status status = step->Load(); !status.ok()) return status;
  return std::unique_ptr<StepReader>(std::move(step));
}

}  // namespace msprobe::server
