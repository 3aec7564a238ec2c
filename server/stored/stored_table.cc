#include "server/stored/stored_table.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/format/cat.h"
#include "server/format/dump/call_order.h"
#include "server/format/dump/frame_text.h"
#include "server/format/storage/block_columns.h"
#include "server/format/storage/block_digest.h"
#include "server/format/storage/fragment_decoder.h"
#include "server/format/storage/record_assembler.h"
#include "server/format/tensor_file/describe_tensor.h"

namespace msprobe::server {
namespace {

TensorDescription DescriptionOf(const StoredContent& content) {
  v1::TensorLeaf leaf;
  leaf.set_dtype(DTypeName(*content.slot));
  *leaf.mutable_shape() = content.shape->dims();
  leaf.set_device(content.slot->device());
  leaf.set_attributes_json(content.slot->attributes_json());
  return DescribeTensor(leaf);
}

class StoredTensor : public TensorElements {
 public:
  StoredTensor(std::shared_ptr<const BlockSource> source, const StoredContent& content)
      : source_(std::move(source)), hash_(content.ref->hash()), description_(DescriptionOf(content)) {}
  const TensorDescription& description() const override { return description_; }
  absl::Status Read(ContentVisitor visit) override { return source_->ReadPayload(hash_, visit); }

 private:
  const std::shared_ptr<const BlockSource> source_;
  const std::string hash_;
  const TensorDescription description_;
};

class StoredTable : public TableSource {
 public:
  explicit StoredTable(std::shared_ptr<const BlockSource> source) : source_(std::move(source)) {}

  const StepTable& table() const override { return table_; }
  StepTable& mutable_table() override { return table_; }
  absl::StatusOr<std::unique_ptr<TensorElements>> OpenTensor(const Row& row) const override {
    const auto found = contents_.find(row.data_name);
    if (found == contents_.end()) return absl::NotFoundError(Cat(row.data_name, ": its content never arrived"));
    return std::make_unique<StoredTensor>(source_, found->second);
  }

  absl::Status Fill(const DumpReading& reading, TableLayouts& layouts) {
    const v1::CaptureSettings& settings = source_->hello().settings();
    auto blocks = source_->Blocks();
    if (!blocks.ok()) return blocks.status();
    blocks_ = *std::move(blocks);
    if (absl::Status status = CheckDigestsOfBlocks(); !status.ok()) return status;
    const auto structure = [&](uint64_t id) { return source_->Structure(id); };
    auto layout =
        layouts.Get(LayoutKey(settings, blocks_), [&] { return MakeTableLayout(settings, blocks_, structure); });
    if (!layout.ok()) return layout.status();
    std::vector<uint64_t> stacks;
    absl::Status status = FillTable(*layout, blocks_, table_, contents_, reading.stacks ? &stacks : nullptr);
    if (status.ok()) status = AddStacks(stacks);
    if (status.ok() && reading.calls) status = AddCalls();
    if (status.ok() && contents_.empty()) blocks_.clear();
    table_.has_stacks = settings.stack_and_construct() && !table_.debug && reading.stacks;
    return status;
  }

 private:
  absl::Status CheckDigestsOfBlocks() const {
    absl::flat_hash_map<uint64_t, SharedStructure> known;
    for (const auto& block : blocks_) {
      if (block->digest_size() == 0) continue;
      for (uint64_t id : block->structures()) {
        if (known.contains(id)) continue;
        auto structure = source_->Structure(id);
        if (!structure.ok()) return structure.status();
        known.emplace(id, *std::move(structure));
      }
      const auto summary = [&](uint64_t id) { return &known.at(id)->summary; };
      auto columns = CheckBlock(*block, summary, [](uint64_t) { return true; });
      if (!columns.ok()) return absl::DataLossError(Cat("a stored block: ", StdView(columns.status().message())));
      if (absl::Status status = CheckDigests(*block, *columns, summary); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status AddStacks(const std::vector<uint64_t>& stacks) {
    for (size_t i = 0; i < stacks.size(); ++i) {
      if (stacks[i] == 0) continue;
      auto number = NumberOfStack(stacks[i]);
      if (!number.ok()) return number.status();
      table_.entries[i].stack = *number;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> NumberOfStack(uint64_t id) {
    const auto [known, added] = stacks_.try_emplace(id, static_cast<int32_t>(table_.stacks.size()));
    if (!added) return known->second;
    auto frames = source_->Stack(id);
    if (!frames.ok()) return frames.status();
    std::vector<std::string>& lines = table_.stacks.emplace_back();
    for (const v1::Frame& frame : *frames) lines.push_back(FrameText(frame));
    return known->second;
  }

  // Those that the construct.json of the step's export would have.
  absl::Status AddCalls() {
    absl::flat_hash_map<std::string_view, const Entry*> entries;
    entries.reserve(table_.entries.size());
    for (const Entry& entry : table_.entries) entries.emplace(entry.name, &entry);
    RecordAssembler records(0, {}, [this](uint64_t id) { return source_->Structure(id); });
    for (const auto& block : blocks_) {
      if (absl::Status status = records.Add(block); !status.ok()) return status;
    }
    CallOrder calls;
    absl::flat_hash_map<std::string, uint64_t> other_stacks;  // of calls that are no entries
    absl::Status status = records.ForEachHead([&](const v1::Record& head, uint64_t stack_id) {
      calls.Add(head, stack_id);
      if (stack_id != 0 && !entries.contains(head.full_name())) other_stacks.emplace(head.full_name(), stack_id);
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
    return calls.ForEachConstructed([&](const CallOrder::Call& node) -> absl::Status {
      Call& call = table_.calls.emplace_back();
      call.parent = table_.text(table_.Intern(node.parent));
      if (const auto entry = entries.find(node.full_name); entry != entries.end()) {
        call.name = entry->second->name;
        call.stack = entry->second->stack;
        return absl::OkStatus();
      }
      call.name = table_.arena.Add(node.full_name);
      if (const auto other = other_stacks.find(node.full_name); other != other_stacks.end()) {
        auto number = NumberOfStack(other->second);
        if (!number.ok()) return number.status();
        call.stack = *number;
      }
      return absl::OkStatus();
    });
  }

  const std::shared_ptr<const BlockSource> source_;
  StepTable table_;
  absl::flat_hash_map<uint64_t, int32_t> stacks_;  // by id, the number in the table
  StepBlocks blocks_;                              // that contents_ point into
  StoredContents contents_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TableSource>> ReadStoredTable(std::unique_ptr<BlockSource> source,
                                                             const DumpReading& reading, TableLayouts& layouts) {
  auto read = std::make_unique<StoredTable>(std::move(source));
  if (absl::Status status = read->Fill(reading, layouts); !status.ok()) return status;
  return read;
}

}  // namespace msprobe::server
