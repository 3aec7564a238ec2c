#include "server/format/monitor/monitor_files.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "server/format/cat.h"
#include "server/format/monitor/csv_reader.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;

// The prefix of TrainerMonitorV2's files, a scope of their rows, and what TrainerMon calls it.
struct Scope {
  std::string_view file;
  std::string_view scope;
  std::string_view metric;
};
constexpr Scope kScopes[] = {{"module", "forward", "actv"},
                             {"module", "backward", "actv_grad"},
                             {"weight_grad", "unreduced", "grad_unreduced"},
                             {"weight_grad", "reduced", "grad_reduced"},
                             {"optimizer", "exp_avg", "exp_avg"},
                             {"optimizer", "exp_avg_sq", "exp_avg_sq"},
                             {"param", "param_origin", "param_origin"},
                             {"param", "param_updated", "param_updated"},
                             {"cc", "comm", "other"}};
constexpr std::string_view kReduced = "grad_reduced";
constexpr size_t kShownHead = 200;  // characters of a first line that is not one

size_t MetricNamed(std::string_view name) {
  const auto* const found = std::find(std::begin(MonitorFiles::kMetrics), std::end(MonitorFiles::kMetrics), name);
  return static_cast<size_t>(found - std::begin(MonitorFiles::kMetrics));
}

bool IsFileOfScopes(std::string_view name) {
  return std::any_of(std::begin(kScopes), std::end(kScopes), [&](const Scope& each) { return each.file == name; });
}

template <typename Number>
bool Read(std::string_view text, Number& number) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

// "3" or "3.0", as pandas writes a column of which a cell is missing.
template <typename Number>
bool ReadWhole(std::string_view text, Number& number) {
  if (text.ends_with(".0")) text.remove_suffix(2);
  return Read(text, number);
}

// "Nov26_02-58-18" in an order of texts.
std::string TimeOf(std::string_view text) {
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  const size_t month = text.size() < 3 ? std::string_view::npos : kMonths.find(text.substr(0, 3));
  if (month == std::string_view::npos || month % 3 != 0) return std::string(text);
  return Cat(std::string(1, static_cast<char>('a' + month / 3)), text.substr(3));
}

// A rank's directory, and the time in its name where it is TrainerMon's.
struct RankDirectory {
  uint32_t rank = 0;
  bool scopes = false;
  std::string time;
};
std::optional<RankDirectory> RankDirectoryOf(std::string_view name) {
  RankDirectory found;
  if (name.starts_with("rank_") && Read(name.substr(5), found.rank)) {
    found.scopes = true;
    return found;
  }
  const size_t at = name.find("-rank");
  if (at == std::string_view::npos) return std::nullopt;
  const size_t end = name.find('-', at + 5);
  if (end == std::string_view::npos || !Read(name.substr(at + 5, end - at - 5), found.rank)) return std::nullopt;
  found.time = TimeOf(name.substr(0, at));
  return found;
}

// "actv" and 3 of "actv_3-5.csv"; "module" and 3 of "module_step3-5.csv".
struct FileName {
  std::string_view what;
  uint64_t first = 0;
};
std::optional<FileName> FileNameOf(std::string_view name, bool scopes) {
  if (!name.ends_with(".csv")) return std::nullopt;
  name.remove_suffix(4);
  const size_t line = name.rfind('_');
  if (line == std::string_view::npos) return std::nullopt;
  FileName found{name.substr(0, line)};
  std::string_view steps = name.substr(line + 1);
  if (scopes) {
    if (!steps.starts_with("step")) return std::nullopt;
    steps.remove_prefix(4);
  }
  uint64_t last = 0;
  const size_t dash = steps.find('-');
  if (dash == std::string_view::npos || !Read(steps.substr(0, dash), found.first) ||
      !Read(steps.substr(dash + 1), last)) {
    return std::nullopt;
  }
  const bool known = scopes ? IsFileOfScopes(found.what) : MetricNamed(found.what) < std::size(MonitorFiles::kMetrics);
  return known ? std::optional(found) : std::nullopt;
}

// Which column has what; npos: none.
struct Columns {
  static constexpr size_t kNone = static_cast<size_t>(-1);

  explicit Columns(const std::vector<std::string_view>& head) : size(head.size()) {
    for (size_t i = 0; i < head.size(); ++i) {
      if (head[i] == "name" || head[i] == "module_name") name = i;
      if (head[i] == "step") step = i;
      if (head[i] == "micro_step") micro_step = i;
      if (head[i] == "vpp_stage") vpp_stage = i;
      if (head[i] == "scope") scope = i;
    }
  }

  size_t size;
  size_t name = kNone;
  size_t step = kNone;
  size_t micro_step = kNone;
  size_t vpp_stage = kNone;
  size_t scope = kNone;
};

}  // namespace

absl::StatusOr<MonitorFiles> MonitorFiles::Find(const std::string& directory,
                                                const std::vector<std::string>& statistics) {
  MonitorFiles found;
  std::error_code error;
  fs::directory_iterator ranks(directory, error);
  if (error) return absl::NotFoundError(Cat(directory, ": ", error.message()));
  for (const fs::directory_entry& each : ranks) {
    const auto rank = RankDirectoryOf(each.path().filename().string());
    if (!rank || !each.is_directory(error)) continue;
    for (const fs::directory_entry& file : fs::directory_iterator(each.path(), error)) {
      const std::string file_name = file.path().filename().string();
      const auto name = FileNameOf(file_name, rank->scopes);
      if (!name) continue;
      File& kept = found.files_.emplace_back();
      kept.path = file.path().string();
      kept.rank = rank->rank;
      kept.time = rank->time;
      kept.first_step = name->first;
      if (!rank->scopes) kept.metric = MetricNamed(name->what);
    }
    if (error) return absl::NotFoundError(Cat(each.path().string(), ": ", error.message()));
  }
  if (found.files_.empty()) {
    return absl::NotFoundError(Cat(directory,
                                   " holds no files of a training monitor: {time}-rank{R}-{id}/actv_0-0.csv or "
                                   "rank_{R}/module_step0-0.csv"));
  }
  std::sort(found.files_.begin(), found.files_.end(), [](const File& a, const File& b) {
    return std::tie(a.rank, a.time, a.first_step, a.metric, a.path) <
           std::tie(b.rank, b.time, b.first_step, b.metric, b.path);
  });
  std::vector<std::vector<bool>> has(std::size(kMetrics), std::vector<bool>(statistics.size(), false));
  for (const File& file : found.files_) {
    if (absl::Status status = found.ReadHead(file, statistics, has); !status.ok()) return status;
  }
  for (size_t i = 0; i < statistics.size(); ++i) {
    if (std::any_of(has.begin(), has.end(), [&](const auto& metric) { return metric[i]; })) {
      found.statistics_.push_back(statistics[i]);
    }
  }
  for (const std::vector<bool>& metric : has) {
    std::vector<std::string>& of = found.statistics_of_metrics_.emplace_back();
    for (size_t i = 0; i < statistics.size(); ++i) {
      if (metric[i]) of.push_back(statistics[i]);
    }
  }
  return found;
}

absl::Status MonitorFiles::ReadHead(const File& file, const std::vector<std::string>& wanted,
                                    std::vector<std::vector<bool>>& has) const {
  auto reader = CsvReader::Open(file.path);
  if (!reader.ok()) return reader.status();
  std::vector<std::string_view> head;
  auto any = reader->Next(head);
  if (!any.ok()) return any.status();
  if (!*any) return absl::OkStatus();  // nothing was written yet
  const Columns columns(head);
  const std::pair<std::string_view, size_t> needed[] = {{file.metric ? "name" : "module_name", columns.name},
                                                        {"step", columns.step}};
  for (const auto& [name, at] : needed) {
    if (at == Columns::kNone) {
      std::string has = absl::CHexEscape(absl::StrJoin(std::vector<std::string>(head.begin(), head.end()), ", "));
      if (has.size() > kShownHead) has = Cat(has.substr(0, kShownHead), "...");
      return absl::InvalidArgumentError(Cat(file.path, ": the first line has no column \"", name, "\"; it has ", has));
    }
  }
  if (!file.metric && columns.scope == Columns::kNone) {
    return absl::InvalidArgumentError(Cat(file.path, ": the first line has no column \"scope\""));
  }
  const std::string name = fs::path(file.path).filename().string();
  for (size_t metric = 0; metric < std::size(kMetrics); ++metric) {
    const bool holds = file.metric
                           ? *file.metric == metric
                           : std::any_of(std::begin(kScopes), std::end(kScopes), [&](const Scope& each) {
                               return each.metric == kMetrics[metric] && name.starts_with(Cat(each.file, "_step"));
                             });
    if (!holds) continue;
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (std::find(head.begin(), head.end(), wanted[i]) != head.end()) has[metric][i] = true;
    }
  }
  return absl::OkStatus();
}

absl::Status MonitorFiles::ForEachRow(absl::FunctionRef<absl::Status(const MonitorRow& row)> visit,
                                      absl::FunctionRef<void(const std::string& warning)> warn) const {
  for (const File& file : files_) {
    if (absl::Status status = ReadRows(file, visit, warn); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status MonitorFiles::ReadRows(const File& file, absl::FunctionRef<absl::Status(const MonitorRow& row)> visit,
                                    absl::FunctionRef<void(const std::string& warning)> warn) const {
  auto reader = CsvReader::Open(file.path);
  if (!reader.ok()) return reader.status();
  std::vector<std::string_view> cells;
  auto any = reader->Next(cells);
  if (!any.ok()) return any.status();
  if (!*any) return absl::OkStatus();
  const Columns columns(cells);
  std::vector<size_t> value_at;
  for (const std::string& name : statistics_) {
    const auto at = std::find(cells.begin(), cells.end(), name);
    value_at.push_back(at == cells.end() ? Columns::kNone : static_cast<size_t>(at - cells.begin()));
  }
  MonitorRow row;
  row.rank = file.rank;
  row.values.resize(statistics_.size());
  // TrainerMonitorV2 does not number the passes of a step: a target that comes again is of the next one.
  absl::flat_hash_map<std::pair<std::string, size_t>, uint32_t> passes;
  uint32_t step_of_passes = 0;
  uint64_t unread = 0;
  uint64_t first_unread = 0;
  for (;;) {
    any = reader->Next(cells);
    if (!any.ok()) return any.status();
    if (!*any) break;
    row.micro_step = 0;
    row.vpp_stage = 0;
    row.metric = file.metric.value_or(std::size(kMetrics));
    bool whole = cells.size() == columns.size && ReadWhole(cells[columns.step], row.step);
    if (whole && columns.vpp_stage != Columns::kNone) whole = ReadWhole(cells[columns.vpp_stage], row.vpp_stage);
    if (whole && columns.micro_step != Columns::kNone) whole = ReadWhole(cells[columns.micro_step], row.micro_step);
    if (whole && !file.metric) {
      const std::string_view scope = cells[columns.scope];
      for (const Scope& each : kScopes) {
        if (each.scope == scope) row.metric = MetricNamed(each.metric);
      }
      whole = row.metric < std::size(kMetrics);
    }
    if (!whole) {
      if (unread++ == 0) first_unread = reader->line();
      continue;
    }
    row.name = cells[columns.name];
    if (!file.metric) {
      row.vpp_stage = std::max<int64_t>(row.vpp_stage, 0);  // -1: there are no stages
      // The gradient of all passes together, numbered after the last of them.
      if (kMetrics[row.metric] == kReduced) row.micro_step = 0;
      if (columns.micro_step == Columns::kNone) {
        if (std::exchange(step_of_passes, row.step) != row.step) passes.clear();
        row.micro_step = passes[{std::string(row.name), row.metric}]++;
      }
    }
    for (size_t i = 0; i < value_at.size(); ++i) {
      double value = 0;
      const bool given =
          value_at[i] != Columns::kNone && absl::SimpleAtod(AbslView(cells[value_at[i]]), &value) && !std::isnan(value);
      row.values[i] = given ? std::optional(value) : std::nullopt;
    }
    if (absl::Status status = visit(row); !status.ok()) return status;
  }
  if (unread > 0) {
    warn(Cat(file.path, ": line ", first_unread, unread == 1 ? "" : Cat(" and ", unread - 1, " more"),
             " cannot be read and ", unread == 1 ? "is" : "are", " left out"));
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
