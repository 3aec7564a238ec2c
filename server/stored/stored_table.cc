#include "server/stored/stored_table.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/format/cat.h"
#include "server/format/dump/frame_text.h"
#include "server/format/storage/block_columns.h"
#include "server/format/storage/block_digest.h"
#include "server/format/storage/fragment_decoder.h"
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
    absl::Status status = FillTable(*std::move(layout), blocks_, table_, contents_, reading.stacks ? &stacks : nullptr);
    if (status.ok() && contents_.empty()) blocks_.clear();
    table_.has_stacks = settings.stack_and_construct() && !table_.debug && reading.stacks;
    return status.ok() ? AddStacks(stacks) : status;
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
    absl::flat_hash_map<uint64_t, int32_t> known;
    for (size_t i = 0; i < stacks.size(); ++i) {
      if (stacks[i] == 0) continue;
      const auto [found, added] = known.try_emplace(stacks[i], static_cast<int32_t>(table_.stacks.size()));
      if (added) {
        auto frames = source_->Stack(stacks[i]);
        if (!frames.ok()) return frames.status();
        std::vector<std::string> lines;
        for (const v1::Frame& frame : *frames) lines.push_back(FrameText(frame));
        table_.stacks.push_back(std::move(lines));
      }
      table_.entries[i].stack = found->second;
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const BlockSource> source_;
  StepTable table_;
  StepBlocks blocks_;  // that contents_ point into
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
