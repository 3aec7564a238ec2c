#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "server/analysis/compare/comparison.h"
#include "server/format/storage/key.h"
#include "server/web/compared_json.h"
#include "server/web/web_question.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kDefaultRows = 200;
constexpr uint32_t kMaxDifferences = 2000;
constexpr uint32_t kMaxDifferingModules = 4000;

using Compared = v1::ComparedTensor;

// Of rows that are equally bad, those of the earliest step come first, then in order of execution.
bool Worse(const Compared& one, const Compared& other) {
  return std::tuple(other.verdict(), other.excess(), one.step(), one.rank().number(), one.order()) <
         std::tuple(one.verdict(), one.excess(), other.step(), other.rank().number(), other.order());
}

// The worst rows of all that are added.
class WorstRows {
 public:
  explicit WorstRows(size_t limit) : limit_(limit) {}

  void Add(const Compared& row) {
    rows_.push_back(row);
    if (rows_.size() < 2 * limit_) return;
    std::nth_element(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(limit_), rows_.end(), Worse);
    rows_.resize(limit_);
  }
  std::vector<Compared> Take() {
    std::stable_sort(rows_.begin(), rows_.end(), Worse);
    if (rows_.size() > limit_) rows_.resize(limit_);
    return std::move(rows_);
  }

 private:
  const size_t limit_;
  std::vector<Compared> rows_;
};

struct ModuleTally {
  uint64_t rows = 0, differences = 0;
  double excess = 0;
};

uint64_t DifferencesOf(const v1::VerdictTally& tally) {
  uint64_t differences = 0;
  for (int i = 0; i < tally.by_verdict_size(); ++i) {
    if (IsDifference(static_cast<Verdict>(i))) differences += tally.by_verdict(i);
  }
  return differences;
}

// Those that differ most.
struct NamedModule {
  std::string_view name;
  const ModuleTally* tally;
};
std::vector<NamedModule> WorstModules(const std::map<std::string, ModuleTally>& modules, size_t most) {
  std::vector<NamedModule> worst;
  for (const auto& [name, tally] : modules) worst.push_back({name, &tally});
  if (worst.size() <= most) return worst;
  std::stable_sort(worst.begin(), worst.end(), [](const NamedModule& one, const NamedModule& other) {
    return std::pair(one.tally->differences > 0, one.tally->excess) >
           std::pair(other.tally->differences > 0, other.tally->excess);
  });
  worst.resize(most);
  return worst;
}

}  // namespace

// What differs between a run and `golden`: {"rows": [{"step", "rank", "name", "golden_name", "module", "verdict",
// "statistic", "dtype", "shape", "target", "golden", "excess"}, ...], "compared", "differences", "verdicts": {verdict:
// rows}, "modules": [{"name", "rows", "differences", "excess"}, ...], "unpaired"}. "rows" has the worst `limit` of all
// that differ, as WriteCompared writes them; "modules" is summed over steps and ranks, and has at most `modules`, the
// worst if there are more; "unpaired" counts steps of a rank that one side lacks.
absl::Status AnswerDifferences(const WebContext& context, const WebQuery& query, JsonWriter& json) {
  auto run = query.Required("run");
  auto golden = query.Required("golden");
  auto limit = query.Number("limit", kDefaultRows);
  auto most_modules = query.Number("modules", kMaxDifferingModules);
  for (const absl::Status& status : {run.status(), golden.status(), limit.status(), most_modules.status()}) {
    if (!status.ok()) return status;
  }
  v1::CompareRequest request;
  request.mutable_target()->set_run(*run);
  request.mutable_golden()->set_run(*golden);
  request.set_limit(std::clamp(*limit, 1u, kMaxDifferences));
  WorstRows worst(request.limit());
  std::map<std::string, ModuleTally> modules;
  v1::VerdictTally total;
  uint64_t unpaired = 0;
  absl::Status status = Compare(context.analysis, request, context.cancelled, [&](const v1::CompareResponse& response) {
    if (response.has_progress()) {
      return context.tell(response.progress().steps_done(), response.progress().steps_total());
    }
    for (const Compared& row : response.tensors().rows()) worst.Add(row);
    for (const v1::RollUp& up : response.roll_ups().roll_ups()) {
      if (up.level() == v1::RollUp::RUN) total = up.tally();
      if (up.level() != v1::RollUp::MODULE) continue;
      if (modules.size() == kMaxDifferingModules && !modules.contains(up.name())) continue;
      ModuleTally& module = modules[up.name()];
      module.rows += up.tally().rows();
      module.differences += DifferencesOf(up.tally());
      module.excess = std::max(module.excess, up.tally().worst_excess());
    }
    unpaired += response.has_unpaired();
    return true;
  });
  if (!status.ok()) return status;
  json.StartObject();
  json.Name("rows");
  json.StartArray();
  for (const Compared& row : worst.Take()) {
    json.StartObject();
    json.Name("step");
    json.Uint(row.step());
    WriteTexts(json, {{"rank", RankName(row.rank())},
                      {"golden_name", row.golden_name()},
                      {"module", row.module()},
                      {"verdict", std::string(VerdictName(static_cast<Verdict>(row.verdict())))}});
    WriteCompared(json, row);
    json.EndObject();
  }
  json.EndArray();
  for (const auto& [name, count] : {std::pair("compared", total.rows()), std::pair("differences", DifferencesOf(total)),
                                    std::pair("unpaired", unpaired)}) {
    json.Name(name);
    json.Uint64(count);
  }
  json.Name("verdicts");
  json.StartObject();
  for (int i = 0; i < total.by_verdict_size(); ++i) {
    if (total.by_verdict(i) == 0) continue;
    json.Name(VerdictName(static_cast<Verdict>(i)));
    json.Uint64(total.by_verdict(i));
  }
  json.EndObject();
  json.Name("modules");
  json.StartArray();
  for (const NamedModule& module : WorstModules(modules, *most_modules)) {
    json.StartObject();
    json.Name("name");
    json.Text(module.name);
    json.Name("rows");
    json.Uint64(module.tally->rows);
    json.Name("differences");
    json.Uint64(module.tally->differences);
    json.Name("excess");
    WriteNumber(json, module.tally->excess);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return absl::OkStatus();
}

}  // namespace msprobe::server
