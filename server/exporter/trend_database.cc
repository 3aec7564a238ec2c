#include "server/exporter/trend_database.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_join.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr SqliteFile::Options kTrendOptions = {.page_bytes = 16384};

constexpr const char* kSchema =
    "CREATE TABLE monitoring_targets (target_id INTEGER PRIMARY KEY AUTOINCREMENT, target_name TEXT NOT NULL, "
    "vpp_stage INTEGER NOT NULL, micro_step INTEGER NOT NULL DEFAULT 0, UNIQUE(target_name, vpp_stage, micro_step));"
    "CREATE TABLE monitoring_metrics (metric_id INTEGER PRIMARY KEY AUTOINCREMENT, metric_name TEXT UNIQUE NOT NULL);"
    "CREATE TABLE monitoring_tags (tag_id INTEGER PRIMARY KEY AUTOINCREMENT, tag_name TEXT NOT NULL, "
    "category TEXT NOT NULL, metric_id INTEGER NOT NULL, UNIQUE(tag_name, category, metric_id));"
    "CREATE TABLE tag_target_mapping (tag_id INTEGER NOT NULL, target_id INTEGER NOT NULL, "
    "PRIMARY KEY (tag_id, target_id));";

constexpr std::string_view kAddTarget = "INSERT INTO monitoring_targets VALUES (?1, ?2, ?3, ?4)";
constexpr std::string_view kAddMetric = "INSERT INTO monitoring_metrics VALUES (?1, ?2)";
constexpr std::string_view kAddTag = "INSERT INTO monitoring_tags VALUES (?1, ?2, ?3, ?4)";
constexpr std::string_view kTagTarget = "INSERT INTO tag_target_mapping VALUES (?1, ?2)";

// The plugin asks for one target at all ranks and steps, and for one step: in the order of the key only a rank is near.
constexpr const char* kTrendIndexes =
    "CREATE INDEX trend_target ON trend_data (target_id, metric_id);"
    "CREATE INDEX trend_step ON trend_data (step, metric_id);";

template <typename Each>
std::string Listed(size_t count, Each each) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += Cat(i == 0 ? "" : ", ", each(i));
  return text;
}

std::string Holes(size_t count) {
  return Listed(count, [](size_t i) { return Cat("?", i + 1); });
}

int64_t IdOf(size_t metric) { return static_cast<int64_t>(metric) + 1; }

}  // namespace

TrendDatabase::TrendDatabase(std::unique_ptr<SqliteFile> file, std::vector<Metric> metrics, size_t columns)
    : file_(std::move(file)),
      metrics_(std::move(metrics)),
      add_values_(Cat("INSERT OR REPLACE INTO trend_data VALUES (", Holes(4 + columns), ")")) {}

absl::StatusOr<std::unique_ptr<TrendDatabase>> TrendDatabase::Create(std::string path, std::vector<Metric> metrics,
                                                                     const std::vector<std::string>& columns) {
  const std::string schema = Cat(
      kSchema,
      "CREATE TABLE trend_data (rank INTEGER NOT NULL, step INTEGER NOT NULL, target_id INTEGER NOT NULL, metric_id "
      "INTEGER NOT NULL, ",
      Listed(columns.size(), [&](size_t i) { return Cat(columns[i], " REAL DEFAULT NULL"); }),
      ", PRIMARY KEY (rank, step, target_id, metric_id)) WITHOUT ROWID;",
      "CREATE TABLE global_stats (max_rank INTEGER DEFAULT 0, min_step INTEGER DEFAULT 0, max_step INTEGER DEFAULT 0",
      metrics.empty() ? "" : ", ",
      Listed(metrics.size(), [&](size_t i) { return Cat(metrics[i].name, " TEXT DEFAULT NULL"); }), ");");
  auto file = SqliteFile::Create(std::move(path), kTrendOptions, schema.c_str());
  if (!file.ok()) return file.status();
  std::unique_ptr<TrendDatabase> made(new TrendDatabase(*std::move(file), std::move(metrics), columns.size()));
  for (size_t i = 0; i < made->metrics_.size(); ++i) {
    if (absl::Status status = made->file_->Run(kAddMetric, {IdOf(i), made->metrics_[i].name}); !status.ok()) {
      return status;
    }
  }
  return made;
}

absl::StatusOr<int64_t> TrendDatabase::Number(const TrendTarget& target) {
  const auto [known, added] = targets_.try_emplace(target, static_cast<int64_t>(targets_.size()) + 1);
  if (!added) return known->second;
  absl::Status status = file_->Run(kAddTarget, {known->second, target.name, target.vpp_stage, target.micro_step});
  if (!status.ok()) return status;
  return known->second;
}

absl::Status TrendDatabase::AddTags(int64_t target, size_t metric, const std::vector<TrendTag>& tags) {
  for (const TrendTag& tag : tags) {
    const auto [known, added] = tags_.try_emplace({tag, metric}, static_cast<int64_t>(tags_.size()) + 1);
    if (added) {
      absl::Status status = file_->Run(kAddTag, {known->second, tag.name, tag.category, IdOf(metric)});
      if (!status.ok()) return status;
    }
    if (!tagged_.emplace(known->second, target).second) continue;
    if (absl::Status status = file_->Run(kTagTarget, {known->second, target}); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status TrendDatabase::AddValues(uint32_t rank, uint32_t step, int64_t target, size_t metric,
                                      std::span<const std::optional<double>> values) {
  row_.assign({rank, step, target, IdOf(metric)});
  for (const std::optional<double>& value : values) {
    row_.push_back(value && std::isinf(*value) ? SqliteValue(std::copysign(kInfinity, *value)) : SqliteValue(value));
  }
  ++rows_;
  max_rank_ = std::max(max_rank_, rank);
  min_step_ = std::min(min_step_, step);
  max_step_ = std::max(max_step_, step);
  return file_->Run(add_values_, row_);
}

absl::Status TrendDatabase::Finish() {
  std::vector<std::string> statistics;
  for (const Metric& metric : metrics_) statistics.push_back(absl::StrJoin(metric.statistics, ","));
  std::vector<SqliteValue> row = {max_rank_, std::min(min_step_, max_step_), max_step_};
  row.insert(row.end(), statistics.begin(), statistics.end());
  absl::Status status = file_->Run(Cat("INSERT INTO global_stats VALUES (", Holes(row.size()), ")"), row);
  return status.ok() ? file_->Finish(kTrendIndexes) : status;
}

}  // namespace msprobe::server
