#include "server/monitor/live_checks.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "rapidjson/document.h"
#include "rapidjson/stringbuffer.h"
#include "rapidjson/writer.h"
#include "server/exporter/step_exporter.h"
#include "server/format/cat.h"
#include "server/format/tensor_file/tensor_file_name.h"
#include "server/ingest/payload/payload_upload.h"
#include "server/ingest/session/process_check.h"
#include "server/ingest/session/sessions.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

constexpr absl::Duration kSweep = absl::Seconds(1);
constexpr uint32_t kItemTimeoutMs = 600'000;  // as msprobe-client check has it
// A server that begins looks again at so many steps before the last that has an item.
constexpr uint32_t kLookBack = 64;
constexpr std::array<std::string_view, 2> kComputed = {"cpu-fp64", "cpu-raised"};
constexpr std::array<std::string_view, 7> kVerdicts = {"pass",  "warning", "fail",   "undecided",
                                                       "error", "skip",    "crashed"};

const Caller kSelf{.identity = "", .peer = "", .is_admin = true};

std::string TextOf(const rapidjson::Value* section, const char* field, std::string_view otherwise) {
  if (section == nullptr) return std::string(otherwise);
  const auto found = section->FindMember(field);
  return found != section->MemberEnd() && found->value.IsString() ? found->value.GetString() : std::string(otherwise);
}

struct Asked {
  std::string golden, policy;
};

// What the configuration of a run says of verdicts; docs/config.md has the defaults.
Asked AskedBy(const v1::CaptureSettings& settings) {
  rapidjson::Document json;
  // Iterative: a sender may nest deeper than the stack is.
  json.Parse<rapidjson::kParseNanAndInfFlag | rapidjson::kParseIterativeFlag>(settings.config_json().c_str());
  const rapidjson::Value* section = nullptr;
  if (!json.HasParseError() && json.IsObject()) {
    const auto found = json.FindMember(LiveChecks::kTask);
    if (found != json.MemberEnd() && found->value.IsObject()) section = &found->value;
  }
  return {.golden = TextOf(section, "golden", kComputed[0]), .policy = TextOf(section, "policy", "default")};
}

// The fields of checker.Settings, as the kind "check" reads them.
std::string OptionsOf(const std::string& run, const Asked& asked) {
  rapidjson::StringBuffer text;
  rapidjson::Writer<rapidjson::StringBuffer> writer(text);
  const auto put = [&writer](const char* key, const std::string& value) {
    writer.Key(key);
    writer.String(value.c_str(), static_cast<rapidjson::SizeType>(value.size()));
  };
  writer.StartObject();
  put("device", "recorded");
  put("golden", asked.golden);
  put("policy", asked.policy);
  writer.Key("seed");
  writer.Int(1234);
  writer.Key("stress");
  writer.Bool(false);
  put("shown", run);
  writer.EndObject();
  return text.GetString();
}

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

std::string_view VerdictOf(const v1::ItemResult& result) {
  if (result.outcome() == v1::OUTCOME_CRASHED) return "crashed";
  if (result.outcome() == v1::OUTCOME_FAILED) return "error";
  const auto* const found = std::find(kVerdicts.begin(), kVerdicts.end(), result.verdict());
  return found == kVerdicts.end() ? "undecided" : *found;
}

}  // namespace

std::unique_ptr<StepMonitor> MakeLiveChecks(const MonitorParts& parts) {
  return parts.jobs == nullptr ? nullptr : std::make_unique<LiveChecks>(parts.store, parts.jobs, parts.metrics);
}

absl::Status LiveChecks::Begin(Sessions*) {
  auto jobs = jobs_->List({});
  if (!jobs.ok()) return jobs.status();
  for (const v1::Job& job : jobs->jobs()) {
    if (job.title() != kTitle || job.kind() != kTask || job.state() != v1::Job::OPEN) continue;
    if (absl::Status status = GoOn(job); !status.ok()) return status;
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

absl::Status LiveChecks::GoOn(const v1::Job& job) {
  auto run = store_->catalogue().FindRun(job.run());
  if (!run.ok()) return absl::IsNotFound(run.status()) ? absl::OkStatus() : run.status();
  auto sessions = store_->catalogue().Sessions(run->number());
  if (!sessions.ok()) return sessions.status();
  // The records with items of the last steps, by step and directory.
  std::map<uint32_t, std::map<std::string, std::set<std::string>>> names;
  uint32_t last = 0;
  absl::Status status = store_->database().ForEach(
      Family::kMeta, JobKey(MetaSpace::kJobItem, run->number(), job.job()),
      [&](std::string_view, std::string_view value) {
        auto item = DecodeAs<v1::JobItem>(value);
        if (!item.ok()) return item.status();
        const std::string& name = item->name();  // "step3/rank0/Functional.linear.0.forward"
        const size_t rank = name.find('/');
        const size_t record = name.find('/', rank + 1);
        uint32_t step = 0;
        // Anybody may name a job like ours, and its items as he likes.
        if (record == std::string::npos || rank < 4 || !absl::SimpleAtoi(name.substr(4, rank - 4), &step)) {
          return absl::OkStatus();
        }
        last = std::max(last, step);
        names[step][name.substr(0, record)].insert(name.substr(record + 1));
        while (last - names.begin()->first > kLookBack) names.erase(names.begin());
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  auto steps = store_->steps().Of(run->number());
  if (!steps.ok()) return steps.status();
  for (const auto& [key, row] : *steps) {
    if (key.step < last && last - key.step > kLookBack) continue;
    const auto session = std::find_if(sessions->begin(), sessions->end(),
                                      [&key = key](const auto& each) { return each.epoch() == key.epoch; });
    if (session == sessions->end() || session->hello().settings().task() != kTask) continue;
    const absl::Time now = absl::Now();
    steps_[{session->session(), key.step}] = {
        .since = now, .latest = now, .done = names[key.step][StepDirectory(key.step, RankOfCode(key.rank))]};
  }
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
    {
      absl::MutexLock lock(&mu_);
      const auto stops = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopping_; };
      if (mu_.AwaitWithTimeout(absl::Condition(&stops), kPeriod)) return;
    }
    Look(absl::Now());
  }
}

void LiveChecks::Look(absl::Time now) {
  TakeNews();
  for (auto at = steps_.begin(); at != steps_.end();) {
    if (!at->second.changed && now < at->second.again) {
      ++at;
      continue;
    }
    auto through = LookAt(at->first, at->second, now);
    if (!through.ok() && !absl::IsNotFound(through.status())) {
      LogWarning("step {} is not checked: {}", at->first.second, through.status().ToString());
    }
    at = !through.ok() || *through ? steps_.erase(at) : std::next(at);
  }
  std::map<std::string, absl::Duration> oldest;  // by run
  for (auto at = live_.begin(); at != live_.end();) {
    Live& live = at->second;
    absl::Status status = CountResults(at->first, live);
    if (absl::IsNotFound(status)) {  // the run was deleted, or the job
      oldest.try_emplace(live.run);
      at = live_.erase(at);
      continue;
    }
    if (!status.ok()) LogWarning("verdicts of job {} are not counted: {}", at->first, status.ToString());
    absl::Duration& age = oldest[live.run];
    if (!live.cancelled && !live.unchecked.empty()) age = std::max(age, now - live.unchecked.begin()->second);
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

void LiveChecks::SeeCancelled() {
  const auto jobs = jobs_->List({});
  if (!jobs.ok()) return;
  for (const v1::Job& job : jobs->jobs()) {
    const auto found = live_.find(job.job());
    if (found != live_.end() && job.state() == v1::Job::CANCELLED) found->second.cancelled = true;
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
  }
  // A step without news is through, or was not captured for this.
  for (const Place& place : finished) {
    if (const auto found = steps_.find(place); found != steps_.end()) found->second.changed = true;
  }
}

absl::StatusOr<bool> LiveChecks::LookAt(const Place& place, Waiting& waiting, absl::Time now) {
  if (std::exchange(waiting.changed, false)) waiting.whole = false;
  waiting.again = now + kPeriod;
  auto session = store_->database().Find<storage::SessionRow>(SessionKey(place.first));
  if (!session.ok()) return session.status();
  if (!session->has_value()) return true;
  const StepKey key{(*session)->run(), RankCode((*session)->hello().rank()), place.second, (*session)->epoch()};
  auto row = store_->database().Find<storage::StepRow>(key.Encode());
  if (!row.ok()) return row.status();
  if (!row->has_value()) return true;  // it was discarded or deleted
  // Without news only payloads can come, and a step may stay open for hours.
  if (waiting.whole) {
    waiting.again = now + kSweep;
    return (*row)->state() != v1::StepSummary::OPEN;
  }
  auto job = JobOf(**session);
  if (!job.ok()) return job.status();
  const Live& live = live_.at(*job);
  if (!live.golden.empty() && now - waiting.since < kGoldenPatience) {
    auto there = GoldenIsThere(live, key);
    if (!there.ok()) return there.status();
    waiting.again = now + kSweep;
    if (!*there) return false;
  }
  const std::string& run = (*session)->hello().run();
  const v1::Rank& rank = (*session)->hello().rank();
  auto records = store_->steps().Open(run, key.step, rank, key.epoch);
  if (!records.ok()) return records.status();
  v1::AddItemsRequest request;
  bool all = true;
  const auto unseen = [&](const std::string& name, uint32_t) { return !waiting.done.contains(name); };
  absl::Status status = (*records)->ForEachRecordNamed(unseen, [&](const v1::Record& record, uint64_t) -> absl::Status {
    if (!IsDone(record)) return absl::OkStatus();
    auto whole = HasPayloads(record);
    if (!whole.ok()) return whole.status();
    if (!*whole) {
      all = false;
      return absl::OkStatus();
    }
    request.add_items()->set_name(Cat(StepDirectory(key.step, rank), "/", record.full_name()));
    waiting.done.insert(record.full_name());
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (absl::Status added = Add(*job, std::move(request), waiting.latest); !added.ok()) return added;
  waiting.whole = all;
  return (*row)->state() == v1::StepSummary::INCOMPLETE || ((*row)->state() == v1::StepSummary::COMPLETE && all);
}

absl::StatusOr<bool> LiveChecks::HasPayloads(const v1::Record& record) const {
  bool whole = true;
  absl::Status status = ForEachTensor(record, [&](std::span<const std::string>, const v1::TensorLeaf& leaf) {
    if (!whole || !leaf.has_payload()) return absl::OkStatus();
    auto stored = store_->database().Get(Family::kMeta, PayloadKey(leaf.payload().hash()));
    if (stored.ok()) whole = stored->has_value();
    return stored.status();
  });
  if (!status.ok()) return status;
  return whole;
}

absl::StatusOr<bool> LiveChecks::GoldenIsThere(const Live& live, const StepKey& step) const {
  auto run = store_->catalogue().LookUpRun(live.golden);
  if (!run.ok()) return run.status();
  if (!run->has_value()) return false;
  auto sessions = store_->catalogue().Sessions((*run)->number());
  if (!sessions.ok()) return sessions.status();
  std::set<uint32_t> ranks;
  for (const storage::SessionRow& session : *sessions) ranks.insert(RankCode(session.hello().rank()));
  const uint32_t rank = ranks.size() == 1 ? *ranks.begin() : step.rank;  // as the checker pairs them
  auto parts = store_->steps().Of((*run)->number(), RankOfCode(rank), step.step);
  if (!parts.ok()) return parts.status();
  return std::any_of(parts->begin(), parts->end(),
                     [](const auto& part) { return part.second.state() != v1::StepSummary::OPEN; });
}

absl::StatusOr<uint32_t> LiveChecks::JobOf(const storage::SessionRow& session) {
  const std::string& run = session.hello().run();
  for (const auto& [job, live] : live_) {
    if (live.run == run && (live.cancelled || !live.sealed)) return job;
  }
  const Asked asked = AskedBy(session.hello().settings());
  v1::CreateJobRequest request;
  request.set_run(run);
  request.set_kind(kTask);
  request.set_title(kTitle);
  request.set_options(OptionsOf(run, asked));
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
    if (std::find(kComputed.begin(), kComputed.end(), asked.golden) == kComputed.end()) live.golden = asked.golden;
    return job->job();
  }
}

absl::Status LiveChecks::Add(uint32_t number, v1::AddItemsRequest request, absl::Time news) {
  Live& live = live_.at(number);
  if (live.cancelled) return absl::OkStatus();
  const uint64_t unchecked = live.items - std::min(live.items, live.results);
  const auto room = static_cast<int>(kMaxUnchecked - std::min(kMaxUnchecked, unchecked));
  if (const int over = request.items_size() - room; over > 0) {
    metrics_->Add(Metric::kCheckLeftOut, over, {live.run});
    request.mutable_items()->DeleteSubrange(room, over);
  }
  if (request.items().empty()) return absl::OkStatus();
  request.set_job(number);
  request.set_first(live.items);
  auto job = jobs_->AddItems(request, kSelf);
  live.cancelled = absl::IsFailedPrecondition(job.status());
  if (live.cancelled) return absl::OkStatus();
  if (!job.ok()) return job.status();
  for (; live.items < job->items(); ++live.items) live.unchecked.emplace(live.items, news);
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
        metrics_->Add(Metric::kCheckVerdicts, 1, {live.run, std::string(VerdictOf(result))});
        if (const auto found = live.unchecked.find(result.item()); found != live.unchecked.end()) {
          const absl::Duration took = absl::FromUnixMicros(result.finished_unix_us()) - found->second;
          metrics_->Observe(Metric::kCheckSeconds, std::max(0.0, absl::ToDoubleSeconds(took)));
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
    const auto step = steps_.lower_bound({session.session(), 0});
    return step != steps_.end() && step->first.first == session.session();
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
