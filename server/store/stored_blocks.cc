#include "server/store/stored_blocks.h"

#include <algorithm>
#include <utility>

#include "server/format/cat.h"
#include "server/format/storage/record_assembler.h"
#include "server/store/block_source.h"
#include "server/store/tiles/tiled_passes.h"

namespace msprobe::server {
namespace {

class StoredOrigin : public BlockSource {
 public:
  StoredOrigin(const Store& store, const StepKey& key, const storage::StepRow& row, storage::SessionRow session)
      : store_(store), key_(key), row_(row), session_(std::move(session)) {}

  const storage::StepRow& row() const override { return row_; }
  const v1::Hello& hello() const override { return session_.hello(); }
  absl::StatusOr<std::vector<std::shared_ptr<const v1::Block>>> Blocks() const override {
    return ReadStoredBlocks(store_, key_);
  }
  absl::StatusOr<SharedStructure> Structure(uint64_t id) const override { return store_.Structure(key_.run, id); }
  absl::StatusOr<std::vector<v1::Frame>> Stack(uint64_t id) const override { return StoredStack(store_, key_.run, id); }
  absl::Status ReadPayload(std::string_view hash,
                           absl::FunctionRef<absl::Status(std::string_view)> visit) const override {
    return store_.ReadPayload(hash, visit);
  }
  absl::Status ReadPayloadRange(std::string_view hash, uint64_t offset, uint64_t size,
                                absl::FunctionRef<absl::Status(uint64_t, std::string_view)> visit) const override {
    return store_.ReadPayloadRange(hash, offset, size, visit);
  }
  absl::StatusOr<std::vector<v1::Marker::Fault>> Faults() const override {
    std::vector<v1::Marker::Fault> faults;
    std::string prefix = FaultKey(key_, 0);
    prefix.resize(prefix.size() - 4);
    absl::Status status = store_.ForEach(Family::kMeta, prefix, [&](std::string_view, std::string_view value) {
      auto fault = DecodeAs<v1::Marker::Fault>(value);
      if (fault.ok()) faults.push_back(*std::move(fault));
      return fault.status();
    });
    if (!status.ok()) return status;
    return faults;
  }

 private:
  const Store& store_;
  const StepKey key_;
  const storage::StepRow row_;
  const storage::SessionRow session_;
};

class StoredRecords : public RecordSource {
 public:
  StoredRecords(std::unique_ptr<BlockSource> source, const std::string& run, const StepKey& key)
      : source_(std::move(source)),
        run_(run),
        key_(key),
        rank_(RankOfCode(key.rank)),
        assembler_(key.step, rank_, [this](uint64_t id) { return source_->Structure(id); }) {}

  absl::Status Load() {
    auto blocks = source_->Blocks();
    if (!blocks.ok()) return blocks.status();
    for (const auto& block : *blocks) {
      if (absl::Status status = assembler_.Add(block); !status.ok()) return status;
    }
    auto faults = source_->Faults();
    if (faults.ok()) faults_ = *std::move(faults);
    return faults.status();
  }

  const std::string& run() const override { return run_; }
  uint32_t step() const override { return key_.step; }
  const v1::Rank& rank() const override { return rank_; }
  uint32_t epoch() const override { return key_.epoch; }
  State state() const override { return source_->row().state(); }
  const v1::CaptureSettings& settings() const override { return source_->hello().settings(); }
  const v1::Hello& hello() const override { return source_->hello(); }

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

  absl::StatusOr<std::vector<v1::Frame>> Stack(uint64_t stack_id) override { return source_->Stack(stack_id); }

  absl::Status ReadPayload(std::string_view hash, absl::FunctionRef<absl::Status(std::string_view)> visit) override {
    return source_->ReadPayload(hash, visit);
  }

  absl::Status ReadPayloadRange(std::string_view hash, uint64_t offset, uint64_t size,
                                absl::FunctionRef<absl::Status(uint64_t, std::string_view)> visit) override {
    return source_->ReadPayloadRange(hash, offset, size, visit);
  }

  std::vector<v1::Marker::Fault> faults() override { return faults_; }
  std::vector<v1::Marker::Gap> gaps() override { return {source_->row().gaps().begin(), source_->row().gaps().end()}; }

 private:
  const std::unique_ptr<BlockSource> source_;
  const std::string run_;
  const StepKey key_;
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

absl::StatusOr<std::vector<v1::Frame>> StoredStack(const Store& store, uint32_t run, uint64_t id) {
  auto definition = store.Definition(run, id);
  if (!definition.ok()) return definition.status();
  v1::Stack stack;
  if (definition->kind != DefinitionKind::kStack || !stack.ParseFromString(definition->bytes)) {
    return absl::DataLossError("the definition of a stack does not parse as one");
  }
  return std::vector<v1::Frame>(stack.frames().begin(), stack.frames().end());
}

absl::StatusOr<std::unique_ptr<BlockSource>> BlocksInStore(const Store& store, const StepKey& key,
                                                           const storage::StepRow& row) {
  auto session = store.SessionOfEpoch(key.run, key.epoch);
  if (!session.ok()) return session.status();
  if (session->has_first_settings()) {
    *session->mutable_hello()->mutable_settings() = row.has_settings() ? row.settings() : session->first_settings();
  }
  return std::make_unique<StoredOrigin>(store, key, row, *std::move(session));
}

absl::StatusOr<std::unique_ptr<RecordSource>> RecordsOf(std::unique_ptr<BlockSource> source, const std::string& run,
                                                        const StepKey& key) {
  auto step = std::make_unique<StoredRecords>(std::move(source), run, key);
  if (absl::Status status = step->Load(); !status.ok()) return status;
  return std::unique_ptr<RecordSource>(std::move(step));
}

absl::StatusOr<std::unique_ptr<RecordSource>> OpenStoredRecords(const Store& store, const storage::RunRow& run,
                                                                const StepKey& key, const storage::StepRow& row) {
  auto source = BlocksInStore(store, key, row);
  if (!source.ok()) return source.status();
  return RecordsOf(*std::move(source), run.name(), key);
}

}  // namespace msprobe::server
