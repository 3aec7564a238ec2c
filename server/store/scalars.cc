#include "server/store/scalars.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "server/format/storage/key.h"
#include "server/format/storage/value.h"

namespace msprobe::server {
namespace {

std::string RowsPrefix(uint32_t run, uint32_t epoch) { return MetaPrefix(MetaSpace::kScalars, run, epoch); }

}  // namespace

uint64_t Scalars::IdOf(std::string_view name) { return XXH3_64bits(name.data(), name.size()); }

void Scalars::AddName(uint32_t run, uint64_t series, std::string_view name, ChangeSet& changes) {
  changes.Put(Family::kMeta, SeriesKey(run, series), std::string(name));
}

absl::StatusOr<uint32_t> Scalars::CountRows(uint32_t run, uint32_t epoch) const {
  uint32_t rows = 0;
  absl::Status status =
      database_.ForEach(Family::kMeta, RowsPrefix(run, epoch), [&rows](std::string_view, std::string_view) {
        ++rows;
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return rows;
}

void Scalars::Add(const storage::ScalarsRow& row, Points& points) {
  const int size = std::min({row.step_size(), row.series_size(), row.value_size()});
  for (int i = 0; i < size; ++i) points[row.series(i)].push_back({row.step(i), row.value(i)});
}

absl::Status Scalars::ReadRows(uint32_t run, uint32_t epoch, Points& points, std::vector<std::string>* keys) const {
  return database_.ForEach(Family::kMeta, RowsPrefix(run, epoch), [&](std::string_view key, std::string_view value) {
    auto row = DecodeAs<storage::ScalarsRow>(value);
    if (row.ok()) Add(*row, points);
    if (keys != nullptr) keys->emplace_back(key);
    return row.status();
  });
}

absl::Status Scalars::AddTiling(uint32_t run, uint32_t epoch, const storage::ScalarsRow* last, uint64_t batch,
                                ChangeSet& changes) const {
  Points all;
  std::vector<std::string> keys;
  if (absl::Status status = ReadRows(run, epoch, all, &keys); !status.ok()) return status;
  if (last != nullptr) Add(*last, all);
  for (auto& [series, points] : all) {
    SortPoints(points);
    const SeriesTileKey key{
        .run = run, .epoch = epoch, .series = series, .first_step = points.front().step, .batch = batch};
    changes.Put(Family::kMeta, key.Encode(), EncodeSeriesTile(points));
  }
  // Each by its key: a deleted range would cost each later read of its family.
  for (std::string& key : keys) changes.Delete(Family::kMeta, std::move(key));
  return absl::OkStatus();
}

void Scalars::AddRunDeletion(uint32_t run, ChangeSet& changes) {
  for (MetaSpace space : {MetaSpace::kSeries, MetaSpace::kScalars, MetaSpace::kSeriesTile}) {
    changes.DeletePrefix(Family::kMeta, MetaPrefix(space, run));
  }
}

absl::StatusOr<Scalars::Names> Scalars::ReadNames(uint32_t run) const {
  Names names;
  absl::Status status = database_.ForEach(Family::kMeta, MetaPrefix(MetaSpace::kSeries, run),
                                          [&names](std::string_view key, std::string_view name) {
                                            if (key.size() == 13) names.emplace(ReadU64(key, 5), name);
                                            return absl::OkStatus();
                                          });
  if (!status.ok()) return status;
  return names;
}

absl::Status Scalars::Read(uint32_t run, uint32_t epoch, const Names& series, Range range, Visit visit) const {
  // Rows before tiles: what becomes a tile in between is then seen twice, never missed.
  Points fresh;
  if (absl::Status status = ReadRows(run, epoch, fresh, nullptr); !status.ok()) return status;
  for (const auto& [id, name] : series) {
    std::vector<std::pair<uint64_t, std::vector<SeriesPoint>>> parts;  // by batch
    absl::Status status = database_.ForEach(Family::kMeta, SeriesTileKey::Prefix(run, epoch, id),
                                            [&](std::string_view key, std::string_view value) {
                                              auto at = SeriesTileKey::Decode(key);
                                              if (!at.ok() || at->first_step > range.last_step) return at.status();
                                              auto tile = DecodeSeriesTile(value);
                                              if (!tile.ok()) return tile.status();
                                              parts.emplace_back(at->batch, *std::move(tile));
                                              return absl::OkStatus();
                                            });
    if (!status.ok()) return status;
    std::stable_sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    if (auto found = fresh.find(id); found != fresh.end()) parts.emplace_back(UINT64_MAX, std::move(found->second));
    std::vector<SeriesPoint> points;
    for (const auto& [batch, part] : parts) {
      for (const SeriesPoint& point : part) {
        if (point.step >= range.first_step && point.step <= range.last_step) points.push_back(point);
      }
    }
    if (points.empty()) continue;
    SortPoints(points);
    if (status = visit(id, points); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
