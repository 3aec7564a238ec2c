#include "server/store/block_source.h"

#include <utility>

#include "server/format/storage/record_assembler.h"

namespace msprobe::server {
namespace {

class BlockRecords : public RecordSource {
 public:
  BlockRecords(std::unique_ptr<BlockSource> source, const std::string& run, const StepKey& key)
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
    if (!faults.ok()) return faults.status();
    faults_ = *std::move(faults);
    return absl::OkStatus();
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

  absl::Status ForEachRecordWithoutEdges(absl::FunctionRef<absl::Status(const v1::Record&, uint64_t)> visit) override {
    return assembler_.ForEachWithoutEdges(visit);
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

absl::StatusOr<std::unique_ptr<RecordSource>> RecordsOf(std::unique_ptr<BlockSource> source, const std::string& run,
                                                        const StepKey& key) {
  auto step = std::make_unique<BlockRecords>(std::move(source), run, key);
  if (absl::Status status = step->Load(); !status.ok()) return status;
  return std::unique_ptr<RecordSource>(std::move(step));
}

}  // namespace msprobe::server
