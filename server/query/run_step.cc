#include "server/query/run_step.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/dump_table.h"
#include "server/exporter/record_json.h"
#include "server/exporter/step_exporter.h"
#include "server/exporter/tensor_file_name.h"
#include "server/format/cat.h"
#include "server/format/json_writer.h"

namespace msprobe::server {
namespace {

struct StoredPayload {
  v1::PayloadRef ref;
  TensorDescription description;
};

class StoredTensor : public TensorSource {
 public:
  StoredTensor(const Store& store, const StoredPayload& payload) : store_(store), payload_(payload) {}
  const TensorDescription& description() const override { return payload_.description; }
  absl::Status Read(ContentVisitor visit) override { return store_.ReadPayload(payload_.ref.hash(), visit); }

 private:
  const Store& store_;
  const StoredPayload& payload_;
};

class StoredStep : public StepSource {
 public:
  explicit StoredStep(const Store& store) : store_(store) {}

  const StepTable& table() const override { return table_; }
  StepTable& mutable_table() override { return table_; }
  absl::StatusOr<std::unique_ptr<TensorSource>> OpenTensor(const Row& row) const override {
    const auto found = payloads_.find(AbslView(row.data_name));
    if (found == payloads_.end()) return absl::NotFoundError(Cat(row.data_name, ": its content never arrived"));
    return std::make_unique<StoredTensor>(store_, found->second);
  }

  absl::Status Fill(StepReader& reader, const DumpReading& reading);

 private:
  const Store& store_;
  StepTable table_;
  absl::flat_hash_map<std::string, StoredPayload> payloads_;
};

absl::Status StoredStep::Fill(StepReader& reader, const DumpReading& reading) {
  const v1::CaptureSettings& settings = reader.settings();
  table_.framework = settings.framework().empty() ? "pytorch" : settings.framework();
  table_.task = settings.task();
  table_.level = settings.level();
  table_.debug = settings.level() == "debug";
  table_.has_stacks = settings.stack_and_construct() && !table_.debug && reading.stacks;
  table_.mode = settings.task() == "tensor"                                            ? StepTable::Mode::kTensor
                : settings.summary_mode() == "md5" || settings.summary_mode() == "xor" ? StepTable::Mode::kChecksum
                                                                                       : StepTable::Mode::kStatistics;
  const std::string_view suffix = table_.framework == "mindspore" ? ".npy" : ".pt";
  std::string full_name;
  RecordJsonOptions options;
  options.xor_checksum = settings.summary_mode() == "xor";
  options.crc32 = settings.summary_mode() == "md5";
  options.extended = true;
  options.data_name = [&](std::span<const std::string> path, const v1::TensorLeaf& leaf) -> std::string {
    if (!leaf.has_payload()) return {};
    std::string file = Cat(TensorFileName(full_name, path), suffix);
    payloads_.try_emplace(file, StoredPayload{leaf.payload(), DescribeTensor(leaf)});
    return file;
  };
  DumpTableBuilder builder(&table_);
  JsonWriter writer(false);
  absl::flat_hash_map<uint64_t, int32_t> stacks;
  return reader.ForEachRecord([&](const v1::Record& record, uint64_t stack_id) -> absl::Status {
    if ((record.flags() & v1::FRAGMENT_CONSTRUCT_ONLY) != 0 || (record.kind() == v1::RECORD_DEBUG) != table_.debug) {
      return absl::OkStatus();
    }
    full_name = record.full_name();
    WriteRecord(record, options, writer);
    if (absl::Status status = builder.AddEntry(full_name, writer.Take(), record.token()); !status.ok()) return status;
    Entry& entry = table_.entries.back();
    entry.parent = table_.arena.Add(record.parent());
    if (!reading.stacks || stack_id == 0) return absl::OkStatus();
    const auto [known, added] = stacks.try_emplace(stack_id, static_cast<int32_t>(table_.stacks.size()));
    if (added) {
      auto frames = reader.Stack(stack_id);
      if (!frames.ok()) return frames.status();
      std::vector<std::string> lines;
      for (const v1::Frame& frame : *frames) lines.push_back(FrameText(frame));
      table_.stacks.push_back(std::move(lines));
    }
    entry.stack = known->second;
    return absl::OkStatus();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<StepSource>> ReadStoredStep(StepReader& reader, const Store& store,
                                                           const DumpReading& reading) {
  auto step = std::make_unique<StoredStep>(store);
  if (absl::Status status = step->Fill(reader, reading); !status.ok()) return status;
  return step;
}

}  // namespace msprobe::server
