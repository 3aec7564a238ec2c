#include "server/monitor/live_checks.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "rapidjson/stringbuffer.h"
#include "rapidjson/writer.h"
#include "server/exporter/step_exporter.h"
#include "server/format/cat.h"
#include "server/format/tensor_file/tensor_file_name.h"
#include "server/ingest/payload/payload_upload.h"
#include "server/ingest/session/process_check.h"
#include "server/ingest/session/sessions.h"
#include "server/metrics/log.h"
#include "server/monitor/golden_run.h"

namespace msprobe::server {
namespace {

constexpr absl::Duration kSweep = absl::Seconds(1);
// How soon a call is looked for again in a golden run that has begun its step.
constexpr absl::Duration kGoldenPeriod = absl::Milliseconds(250);
constexpr absl::Duration kRetry = absl::Seconds(10);  // where the store refused
constexpr uint32_t kItemTimeoutMs = 600'000;          // as msprobe-client check has it
constexpr std::array<std::string_view, 7> kVerdictNames = {"pass",  "warning", "fail",   "undecided",
                                                           "error", "skip",    "crashed"};

// Whose tensors nobody needs any more.
constexpr bool HasPassed(std::string_view verdict) { return verdict == "pass" || verdict == "skip"; }

const Caller kSelf{.identity = "", .peer = "", .is_admin = true};

// The token of the n-th live job of a run.
std::string TokenOf(const std::string& run, uint32_t n) {
  const std::string text = Cat("live check ", n, " of ", run);
  std::string token;
  for (const uint64_t half : {DefinitionId(text), DefinitionId(Cat(text, "."))}) {
    for (int byte = 0; byte < 8; ++byte) token.push_back(static_cast<char>(half >> (8 * byte)));
  }
  return token;
}

bool IsDone(const v1::Record& record) {
  return record.kind() == v1::RECORD_API && (record.flags() & v1::FRAGMENT_EXIT) != 0 &&
         (record.flags() & (v1::FRAGMENT_CONSTRUCT_ONLY | v1::FRAGMENT_RAISED)) == 0;
}

// The payload of an item that is not checked, as the kind "check" reads it.
std::string SkipFor(const std::string& why) {
  rapidjson::StringBuffer text;
  rapidjson::Writer<rapidjson::StringBuffer> writer(text);
  writer.StartObject();
  writer.Key("skip");
  writer.String(why.c_str(), static_cast<rapidjson::SizeType>(why.size()));
  writer.EndObject();
  return text.GetString();
}

// "Functional.linear.0.backward" for "Functional.linear.0.forward", and the other way round.
std::string OtherDirection(const std::string& record) {
  const size_t dot = record.rfind('.') + 1;
  return Cat(record.substr(0, dot), record.compare(dot, std::string::npos, "forward") == 0 ? "backward" : "forward");
}

// The record in the name of an item, "step3/rank0/Functional.linear.0.forward".
std::string RecordOf(const std::string& item) { return item.substr(item.find('/', item.find('/') + 1) + 1); }

}  // namespace

std::string_view LiveChecks::VerdictOf(const v1::ItemResult& result) {
  if (result.outcome() == v1::OUTCOME_CRASHED) return "crashed";
  if (result.outcome() == v1::OUTCOME_FAILED) return "error";
  const auto* const found = std::find(kVerdictNames.begin(), kVerdictNames.end(), result.verdict());
  return found == kVerdictNames.end() ? "undecided" : *found;
}

std::unique_ptr<StepMonitor> MakeLiveChecks(const MonitorParts& parts) {
  return parts.jobs == nullptr ? nullptr : std::make_unique<LiveChecks>(parts.store, parts.jobs, parts.metrics);
}

absl::Status LiveChecks::Begin(Sessions*) {
  auto runs = store_->catalogue().Runs();
  if (!runs.ok()) return runs.status();
  for (const storage::RunRow& run : *runs) {
    if (absl::Status status = GoOnWith(run); !status.ok()) return status;
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

void LiveChecks::OnRecords(const storage::SessionRow& session, uint32_t step) {
  if (session.hello().settings().task() != kTask || IsImport(session)) return;
  absl::MutexLock lock(&mu_);
  news_.emplace(Place(session.session(), step), absl::Now());
}

void LiveChecks::OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State) {
  absl::MutexLock lock(&mu_);
  finished_.insert({session, step});
}

void LiveChecks::Forget(const std::string& run) {
  absl::MutexLock lock(&mu_);
  forgotten_.insert(run);
}

void LiveChecks::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void LiveChecks::Run() {
  while (true) {
    // Only news brings work then.
    const bool idle = steps_.empty() && live_.empty();
    {
      absl::MutexLock lock(&mu_);
      const auto wakes = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopping_ || (idle && !news_.empty()); };
      mu_.AwaitWithTimeout(absl::Condition(&wakes), idle ? kSweep : kPeriod);
      if (stopping_) return;
    }
    Look(absl::Now());
  }
}

void LiveChecks::Look(absl::Time now) {
  TakeNews();
  for (auto at = steps_.begin(); at != steps_.end();) {
    Waiting& waiting = at->second;
    if (!waiting.through && (waiting.changed || now >= waiting.again)) {
      auto through = LookAt(at->first, waiting, now);
      if (absl::IsNotFound(through.status())) {
        at = steps_.erase(at);
        continue;
      }
      if (absl::IsInvalidArgument(through.status())) {  // as it would be the next time
        LogWarning("step {} is not checked: {}", at->first.second, through.status().ToString());
        at = steps_.erase(at);
        continue;
      }
      if (!through.ok()) {
        LogWarning("step {} is not checked yet: {}", at->first.second, through.status().ToString());
        waiting.whole = false;
        waiting.again = now + kRetry;
        ++at;
        continue;
      }
      waiting.through = *through;
    }
    if (!waiting.through || waiting.lost || !IsJudged(waiting, now)) {
      ++at;
      continue;
    }
    if (absl::Status status = Release(at->first, waiting); !status.ok()) {
      LogWarning("tensors of step {} stay: {}", at->first.second, status.ToString());
    }
    at = steps_.erase(at);
  }
  std::map<std::string, absl::Duration> oldest;  // by run
  for (auto at = live_.begin(); at != live_.end();) {
    Live& live = at->second;
    absl::Status status = CountResults(at->first, live);
    if (absl::IsNotFound(status)) {  // the run was deleted, or the job
      oldest.try_emplace(live.run);
      Drop(live);
      at = live_.erase(at);
      continue;
    }
    if (!status.ok()) LogWarning("verdicts of job {} are not counted: {}", at->first, status.ToString());
    absl::Duration& age = oldest[live.run];
    if (!live.cancelled && !live.unchecked.empty()) age = std::max(age, now - live.unchecked.begin()->second.news);
    at = live.sealed && (live.cancelled || live.results >= live.items) ? live_.erase(at) : std::next(at);
  }
  for (const auto& [run, age] : oldest) metrics_->Set(Metric::kCheckOldest, absl::ToDoubleSeconds(age), {run});
  if (now - swept_ < kSweep) return;
  swept_ = now;
  SeeCancelled();
  if (absl::Status status = SealEnded(); !status.ok()) {
    LogWarning("jobs of runs that have ended stay open: {}", status.ToString());
  }
}

void LiveChecks::Drop(Live& live) {
  for (const auto& [item, unchecked] : std::exchange(live.unchecked, {})) steps_.erase(unchecked.place);
}

void LiveChecks::SeeCancelled() {
  const auto jobs = jobs_->List({});
  if (!jobs.ok()) return;
  for (const v1::Job& job : jobs->jobs()) {
    const auto found = live_.find(job.job());
    if (found == live_.end() || job.state() != v1::Job::CANCELLED) continue;
    found->second.cancelled = true;
    Drop(found->second);
  }
}

void LiveChecks::TakeNews() {
  std::set<std::string> forgotten;
  std::map<Place, absl::Time> news;
  std::set<Place> finished;
  {
    absl::MutexLock lock(&mu_);
    forgotten.swap(forgotten_);
    news.swap(news_);
    finished.swap(finished_);
  }
  for (const std::string& run : forgotten) {
    for (auto& [job, live] : live_) {
      if (live.run == run) Drop(live);
    }
    std::erase_if(live_, [&run](const auto& each) { return each.second.run == run; });
  }
  for (const auto& [place, time] : news) {
    const auto found = steps_.find(place);
    if (found == steps_.end() && steps_.size() >= kMaxSteps) {
      auto session = store_->database().Find<storage::SessionRow>(SessionKey(place.first));
      if (session.ok() && session->has_value()) {
        metrics_->Add(Metric::kCheckLeftOut, 1, {(*session)->hello().run()});
      }
      continue;
    }
    Waiting& waiting = found == steps_.end() ? steps_[place] : found->second;
    if (found == steps_.end()) waiting.since = time;
    waiting.latest = time;
    waiting.changed = true;
    waiting.through = false;
  }
  // A step without news is through, or was not captured for this.
  for (const Place& place : finished) {
    const auto found = steps_.find(place);
    if (found == steps_.end()) continue;
    found->second.changed = true;
    found->second.through = false;
  }
}

absl::StatusOr<bool> LiveChecks::LookAt(const Place& place, Waiting& waiting, absl::Time now) {
  if (std::exchange(waiting.changed, false)) waiting.whole = false;
  waiting.again = now + kPeriod;
  auto session = store_->database().Find<storage::SessionRow>(SessionKey(place.first));
  if (!session.ok()) return session.status();
  if (!session->has_value()) return true;
  waiting.run = (*session)->hello().run();
  const StepKey key{(*session)->run(), RankCode((*session)->hello().rank()), place.second, (*session)->epoch()};
  auto row = store_->database().Find<storage::StepRow>(key.Encode());
  if (!row.ok()) return row.status();
  if (!row->has_value()) return true;  // it was discarded or deleted
  if (!waiting.settings.has_value()) waiting.settings = CheckSettings::Of((*session)->hello().settings());
  if (waiting.settings->is_reference()) {
    waiting.again = now + kSweep;
    return (*row)->state() != v1::StepSummary::OPEN;
  }
  // Without news only payloads can come, and a step may stay open for hours.
  if (!waiting.whole) {
    auto source = store_->steps().Open((*session)->hello().run(), key.step, (*session)->hello().rank(), key.epoch);
    if (!source.ok()) return source.status();
    waiting.whole = true;
    const auto unseen = [&](const std::string& name, uint32_t) { return !waiting.seen.contains(name); };
    absl::Status status = (*source)->ForEachRecordNamed(unseen, [&](const v1::Record& record, uint64_t) {
      if (!IsDone(record)) return absl::OkStatus();
      auto whole = HasPayloads(*store_, record);
      if (!whole.ok()) return whole.status();
      waiting.whole &= *whole;
      if (*whole && waiting.seen.insert(record.full_name()).second) waiting.ready.push_back(record.full_name());
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
  }
  if (waiting.whole) waiting.again = now + kSweep;
  if (!waiting.ready.empty()) {
    auto job = JobOf(**session);
    if (!job.ok()) return job.status();
    std::vector<std::string> ready = waiting.ready;
    if (absl::Status added = AddReady(place, waiting, *job, key, now); !added.ok()) {
      waiting.ready = std::move(ready);
      return added;
    }
  }
  if (!waiting.ready.empty()) return false;
  waiting.lost = (*session)->state() == storage::SessionRow::LOST && (*row)->state() == v1::StepSummary::INCOMPLETE;
  return (*row)->state() == v1::StepSummary::INCOMPLETE ||
         ((*row)->state() == v1::StepSummary::COMPLETE && waiting.whole);
}

absl::Status LiveChecks::AddReady(const Place& place, Waiting& waiting, uint32_t job, const StepKey& step,
                                  absl::Time now) {
  const std::string directory = StepDirectory(step.step, RankOfCode(step.rank));
  v1::AddItemsRequest request;
  // why: empty, or what the verdict "skip" says.
  const auto add = [&](const std::string& record, const std::string& why) {
    v1::JobItem& item = *request.add_items();
    item.set_name(Cat(directory, "/", record));
    if (!why.empty()) item.set_payload(SkipFor(why));
  };
  std::vector<std::string> records = std::exchange(waiting.ready, {});
  const std::string golden = waiting.settings->golden_run();
  if (golden.empty()) {
    for (const std::string& record : records) add(record, "");
    return Add(job, std::move(request), place, waiting);
  }
  const GoldenRun other(store_, golden);
  auto state = other.StateOf(step);
  if (!state.ok()) return state.status();
  const bool begun = *state == GoldenRun::StepState::kOpen || *state == GoldenRun::StepState::kEnded;
  waiting.again = now + (begun ? kGoldenPeriod : kSweep);
  std::map<std::string, bool> have;  // whether its tensors are there
  if (begun) {
    auto found = other.Have(step, records);
    if (!found.ok()) return found.status();
    have = *std::move(found);
  }
  const std::string in_step = Cat("step ", step.step, " of ", RankName(RankOfCode(step.rank)));
  for (const std::string& record : records) {
    const auto found = have.find(record);
    if (found != have.end() && found->second) {
      add(record, "");
    } else if (*state == GoldenRun::StepState::kEnded && found == have.end()) {
      add(record, Cat("run ", golden, " has no ", record, " in ", in_step));
    } else if (*state == GoldenRun::StepState::kMissing) {
      add(record, Cat("run ", golden, " has ended without ", in_step));
    } else if (now - waiting.since >= waiting.settings->golden_wait) {
      const std::string what = begun ? Cat(record, " in ", in_step) : in_step;
      add(record,
          Cat("run ", golden, " gave no ", what, " within ", absl::FormatDuration(waiting.settings->golden_wait)));
    } else {
      waiting.ready.push_back(record);
    }
  }
  return Add(job, std::move(request), place, waiting);
}

bool LiveChecks::IsJudged(const Waiting& waiting, absl::Time now) const {
  if (!waiting.settings.has_value()) return true;
  if (!waiting.settings->is_reference()) return waiting.unjudged == 0;
  if (waiting.judged) return true;
  const bool awaited = std::any_of(live_.begin(), live_.end(), [&waiting](const auto& live) {
    return live.second.golden == waiting.run && !live.second.cancelled && !live.second.unchecked.empty();
  });
  return !awaited && now - waiting.since >= waiting.settings->golden_wait;
}

void LiveChecks::Judge(const Unchecked& item, std::string_view verdict) {
  const auto found = steps_.find(item.place);
  if (found == steps_.end()) return;
  Waiting& waiting = found->second;
  if (waiting.unjudged > 0) --waiting.unjudged;
  if (!HasPassed(verdict)) waiting.kept.insert(item.record);
}

absl::Status LiveChecks::Release(const Place& place, const Waiting& waiting) {
  auto session = store_->database().Find<storage::SessionRow>(SessionKey(place.first));
  if (!session.ok()) return session.status();
  if (!session->has_value() || !(*session)->holds_payloads() || !waiting.settings.has_value()) return absl::OkStatus();
  const storage::SessionRow& row = **session;
  const StepKey step{row.run(), RankCode(row.hello().rank()), place.second, row.epoch()};
  std::set<std::string> kept = waiting.kept;
  // A call runs again as a whole.
  for (const std::string& record : waiting.kept) kept.insert(OtherDirection(record));
  std::set<std::string> needed;  // hashes
  if (!kept.empty()) {
    auto source = store_->steps().Open(row.hello().run(), step.step, row.hello().rank(), step.epoch);
    if (!source.ok()) return source.status();
    absl::Status status = (*source)->ForEachRecordNamed(
        [&](const std::string& name, uint32_t) { return kept.contains(name); },
        [&](const v1::Record& record, uint64_t) {
          return ForEachTensor(record, [&](std::span<const std::string>, const v1::TensorLeaf& leaf) {
            if (leaf.has_payload()) needed.insert(leaf.payload().hash());
            return absl::OkStatus();
          });
        });
    if (!status.ok()) return status;
  }
  auto freed = store_->maintenance().ReleaseStep(row, step.step, [&](std::string_view hash) {
    return waiting.stays || waiting.settings->keep_all || needed.contains(std::string(hash));
  });
  if (!freed.ok()) return freed.status();
  metrics_->Add(Metric::kCheckReleased, static_cast<double>(*freed));
  if (const std::string golden = waiting.settings->golden_run(); !golden.empty()) ReleaseGolden(golden, step, kept);
  return absl::OkStatus();
}

void LiveChecks::ReleaseGolden(const std::string& golden, const StepKey& step, const std::set<std::string>& kept) {
  // Others may still have to be held against it.
  const auto holds = [&](const auto& live) { return live.second.golden == golden && !live.second.cancelled; };
  if (std::count_if(live_.begin(), live_.end(), holds) > 1) return;
  const GoldenRun other(store_, golden);
  auto sessions = other.SessionsFor(step);
  auto is_for_all = other.IsForAllRanks();
  auto mine = store_->catalogue().Sessions(step.run);
  if (!sessions.ok() || !is_for_all.ok() || !mine.ok()) return;  // its tensors go later
  std::set<uint32_t> ranks;
  for (const storage::SessionRow& row : *mine) ranks.insert(RankCode(row.hello().rank()));
  for (const std::string& session : *sessions) {
    const auto found = steps_.find({session, step.step});
    if (found == steps_.end()) continue;
    found->second.kept.insert(kept.begin(), kept.end());
    found->second.judges.insert(step.rank);
    found->second.judged = !*is_for_all || found->second.judges.size() >= ranks.size();
  }
}

absl::StatusOr<uint32_t> LiveChecks::JobOf(const storage::SessionRow& session) {
  const std::string& run = session.hello().run();
  for (const auto& [job, live] : live_) {
    if (live.run == run && (live.cancelled || !live.sealed)) return job;
  }
  const CheckSettings asked = CheckSettings::Of(session.hello().settings());
  v1::CreateJobRequest request;
  request.set_run(run);
  request.set_kind(kTask);
  request.set_title(kTitle);
  request.set_options(asked.OptionsFor(run));
  request.mutable_limits()->set_item_timeout_ms(kItemTimeoutMs);
  for (uint32_t n = 0;; ++n) {
    request.set_token(TokenOf(run, n));
    auto job = jobs_->Create(request, kSelf);
    if (!job.ok()) return job.status();
    if (job->state() != v1::Job::OPEN && job->state() != v1::Job::CANCELLED) continue;
    Live& live = live_[job->job()];
    live.run = run;
    live.cancelled = job->state() == v1::Job::CANCELLED;
    live.items = job->items();
    live.results = job->done() + job->failed() + job->crashed();
    live.golden = asked.golden_run();
    return job->job();
  }
}

absl::Status LiveChecks::Add(uint32_t number, v1::AddItemsRequest request, const Place& place, Waiting& waiting) {
  Live& live = live_.at(number);
  waiting.stays |= live.cancelled;
  if (live.cancelled) return absl::OkStatus();
  const uint64_t unchecked = live.items - std::min(live.items, live.results);
  const auto room = static_cast<int>(kMaxUnchecked - std::min(kMaxUnchecked, unchecked));
  if (const int over = request.items_size() - room; over > 0) {
    metrics_->Add(Metric::kCheckLeftOut, over, {live.run});
    // Nobody says whether they are right: their tensors stay.
    for (int i = room; i < request.items_size(); ++i) waiting.kept.insert(RecordOf(request.items(i).name()));
    request.mutable_items()->DeleteSubrange(room, over);
  }
  if (request.items().empty()) return absl::OkStatus();
  request.set_job(number);
  request.set_first(live.items);
  auto job = jobs_->AddItems(request, kSelf);
  waiting.stays = live.cancelled = absl::IsFailedPrecondition(job.status());
  if (live.cancelled) return absl::OkStatus();
  if (!job.ok()) return job.status();
  for (const v1::JobItem& item : request.items()) {
    live.unchecked.emplace(live.items++,
                           Unchecked{.news = waiting.latest, .place = place, .record = RecordOf(item.name())});
    ++waiting.unjudged;
  }
  return absl::OkStatus();
}

absl::Status LiveChecks::CountResults(uint32_t job, Live& live) {
  v1::ReadResultsRequest request;
  request.set_job(job);
  request.set_after(live.results);
  return jobs_->ReadResults(
      request, [] { return false; },
      [&](const v1::ItemResult& result) {
        ++live.results;
        const std::string_view verdict = VerdictOf(result);
        metrics_->Add(Metric::kCheckVerdicts, 1, {live.run, std::string(verdict)});
        if (const auto found = live.unchecked.find(result.item()); found != live.unchecked.end()) {
          const absl::Duration took = absl::FromUnixMicros(result.finished_unix_us()) - found->second.news;
          metrics_->Observe(Metric::kCheckSeconds, std::max(0.0, absl::ToDoubleSeconds(took)));
          Judge(found->second, verdict);
          live.unchecked.erase(found);
        }
        return true;
      });
}

absl::StatusOr<bool> LiveChecks::GoesOn(const std::string& name) const {
  auto run = store_->catalogue().LookUpRun(name);
  if (!run.ok()) return run.status();
  if (!run->has_value()) return false;
  auto sessions = store_->catalogue().Sessions((*run)->number());
  if (!sessions.ok()) return sessions.status();
  return std::any_of(sessions->begin(), sessions->end(), [this](const storage::SessionRow& session) {
    if (session.state() == storage::SessionRow::OPEN) return true;
    const auto begin = steps_.lower_bound({session.session(), 0});
    const auto end = steps_.upper_bound({session.session(), std::numeric_limits<uint32_t>::max()});
    return std::any_of(begin, end, [](const auto& step) { return !step.second.through; });
  });
}

absl::Status LiveChecks::SealEnded() {
  for (auto& [job, live] : live_) {
    if (live.sealed || live.cancelled) continue;
    auto goes_on = GoesOn(live.run);
    if (!goes_on.ok()) return goes_on.status();
    if (*goes_on) continue;
    v1::AddItemsRequest request;
    request.set_job(job);
    request.set_first(live.items);
    request.set_seal(true);
    auto sealed = jobs_->AddItems(request, kSelf);
    if (!sealed.ok() && !absl::IsFailedPrecondition(sealed.status())) return sealed.status();
    live.sealed = true;
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
