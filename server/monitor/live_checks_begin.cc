// What a server that begins finds of earlier live checks.

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "server/exporter/step_exporter.h"
#include "server/format/storage/key.h"
#include "server/monitor/live_checks.h"

namespace msprobe::server {
namespace {

// A server that begins looks again at so many steps before the last that has an item.
constexpr uint32_t kLookBack = 64;

// The parts of an item's name, "step3/rank0/Functional.linear.0.forward".
struct ItemName {
  uint32_t step = 0;
  std::string directory;  // "step3/rank0"
  std::string record;
};

// Anybody may name a job like ours, and its items as he likes: nothing.
std::optional<ItemName> Parse(const std::string& name) {
  const size_t rank = name.find('/');
  const size_t record = name.find('/', rank + 1);
  ItemName parsed;
  if (record == std::string::npos || rank < 4 || !absl::SimpleAtoi(name.substr(4, rank - 4), &parsed.step)) {
    return std::nullopt;
  }
  parsed.directory = name.substr(0, record);
  parsed.record = name.substr(record + 1);
  return parsed;
}

absl::Status ForEachItem(const Store& store, uint32_t run, uint32_t job,
                         absl::FunctionRef<void(uint64_t item, ItemName name)> visit) {
  return store.database().ForEach(Family::kMeta, JobKey(MetaSpace::kJobItem, run, job),
                                  [&](std::string_view key, std::string_view value) {
                                    auto item = DecodeAs<v1::JobItem>(value);
                                    if (!item.ok()) return item.status();
                                    if (auto name = Parse(item->name())) visit(ReadU32(key, 9), *std::move(name));
                                    return absl::OkStatus();
                                  });
}

}  // namespace

absl::Status LiveChecks::GoOnWith(const storage::RunRow& run) {
  v1::ListJobsRequest request;
  request.set_run(run.name());
  auto jobs = jobs_->List(request);
  if (!jobs.ok()) return jobs.status();
  bool taken_up = false;
  for (const v1::Job& job : jobs->jobs()) {
    if (job.title() != kTitle || job.kind() != kTask || job.state() == v1::Job::CANCELLED) continue;
    if (absl::Status status = GoOn(job, run); !status.ok()) return status;
    taken_up = true;
  }
  return taken_up ? absl::OkStatus() : TakeUp(run, std::nullopt, {}).status();
}

absl::Status LiveChecks::GoOn(const v1::Job& job, const storage::RunRow& run) {
  std::optional<uint32_t> last;
  std::set<std::string> begun;
  if (job.state() == v1::Job::OPEN) {
    last = 0;
    absl::Status status = ForEachItem(*store_, run.number(), job.job(), [&](uint64_t, const ItemName& name) {
      last = std::max(*last, name.step);
      begun.insert(name.directory);
    });
    if (!status.ok()) return status;
  }
  auto places = TakeUp(run, last, begun);
  if (!places.ok()) return places.status();
  if (places->empty() && job.state() != v1::Job::OPEN) return absl::OkStatus();  // an open one has to be sealed

  std::map<uint64_t, std::string> verdicts;  // by item
  v1::ReadResultsRequest results;
  results.set_job(job.job());
  absl::Status status = jobs_->ReadResults(
      results, [] { return false; },
      [&](const v1::ItemResult& result) {
        verdicts.emplace(result.item(), VerdictOf(result));
        return true;
      });
  if (!status.ok()) return status;
  Live live;
  status = ForEachItem(*store_, run.number(), job.job(), [&](uint64_t item, const ItemName& name) {
    const auto found = places->find({name.step, name.directory});
    if (found == places->end()) return;
    for (const Place& place : found->second) steps_[place].seen.insert(name.record);
    const Place& latest = found->second.back();
    Waiting& waiting = steps_[latest];
    ++waiting.unjudged;
    const Unchecked unchecked{.news = waiting.since, .place = latest, .record = name.record};
    if (const auto verdict = verdicts.find(item); verdict != verdicts.end()) {
      Judge(unchecked, verdict->second);
    } else {
      live.unchecked.emplace(item, unchecked);
    }
  });
  if (!status.ok()) return status;
  live.run = run.name();
  live.sealed = job.state() != v1::Job::OPEN;
  live.items = job.items();
  live.results = job.done() + job.failed() + job.crashed();
  for (const auto& [directory, all] : *places) live.golden = steps_[all.back()].settings->golden_run();
  live_[job.job()] = std::move(live);
  return absl::OkStatus();
}

absl::StatusOr<LiveChecks::Directories> LiveChecks::TakeUp(const storage::RunRow& run,
                                                           std::optional<uint32_t> last_step,
                                                           const std::set<std::string>& begun) {
  auto sessions = store_->catalogue().Sessions(run.number());
  if (!sessions.ok()) return sessions.status();
  auto held = store_->payloads().HoldingSteps(run.number());
  if (!held.ok()) return held.status();
  Directories places;
  if (held->empty() && !last_step.has_value()) return places;
  auto steps = store_->steps().Of(run.number());
  if (!steps.ok()) return steps.status();
  const absl::Time now = absl::Now();
  for (const auto& [key, row] : *steps) {
    const bool recent = last_step.has_value() && (key.step >= *last_step || *last_step - key.step <= kLookBack);
    if (!recent && !held->contains({key.epoch, key.step})) continue;
    const auto session = std::find_if(sessions->begin(), sessions->end(),
                                      [&key = key](const auto& each) { return each.epoch() == key.epoch; });
    if (session == sessions->end() || session->hello().settings().task() != kTask) continue;
    const std::string directory = StepDirectory(key.step, RankOfCode(key.rank));
    // One that holds nothing, gets nothing more and is not of this job was released.
    const bool may_go_on = held->contains({key.epoch, key.step}) || row.state() == v1::StepSummary::OPEN;
    if (!may_go_on && session->holds_payloads() && !begun.contains(directory)) continue;
    const Place place(session->session(), key.step);
    Waiting& waiting = steps_[place];
    waiting.since = waiting.latest = now;
    waiting.settings = CheckSettings::Of(session->hello().settings());
    places[{key.step, directory}].push_back(place);
  }
  return places;
}

}  // namespace msprobe::server
