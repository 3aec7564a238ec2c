#include "server/store/stored_blocks.h"

#include <algorithm>
#include <utility>

#include "server/format/storage/value.h"
#include "server/store/tiles/tiled_passes.h"

namespace msprobe::server {

absl::StatusOr<std::vector<std::shared_ptr<const v1::Block>>> ReadStoredBlocks(const Database& database,
                                                                               const StepKey& key) {
  NumberedBlocks numbered;
  absl::Status status = database.ForEach(Family::kRows, RowKey::StepPrefix(key.run, key.rank, key.step),
                                         [&](std::string_view row_key, std::string_view value) -> absl::Status {
                                           auto row = RowKey::Decode(row_key);
                                           if (!row.ok()) return row.status();
                                           if (row->epoch != key.epoch) return absl::OkStatus();
                                           numbered.emplace_back(row->block, std::make_shared<v1::Block>());
                                           return DecodeValue(value, *numbered.back().second);
                                         });
  if (!status.ok()) return status;
  // Rows first: what becomes tiles meanwhile is found twice rather than not at all.
  if (status = ReadTiledBlocks(database, key, numbered); !status.ok()) return status;
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

absl::StatusOr<std::vector<v1::Marker::Fault>> StoredBlocks::Faults() const {
  std::vector<v1::Marker::Fault> faults;
  std::string prefix = FaultKey(step_, 0);
  prefix.resize(prefix.size() - 4);
  absl::Status status = database_->ForEach(Family::kMeta, prefix, [&](std::string_view, std::string_view value) {
    auto fault = DecodeAs<v1::Marker::Fault>(value);
    if (!fault.ok()) return fault.status();
    faults.push_back(*std::move(fault));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return faults;
}

}  // namespace msprobe::server
