#include "server/monitor/rule_watch.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "google/protobuf/util/message_differencer.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/ingest/session/process_check.h"
#include "server/ingest/session/sessions.h"
#include "server/metrics/log.h"
#include "server/monitor/rules/rule_kinds.h"
#include "server/store/alarms.h"
#include "server/stored/gradient_signs.h"
#include "server/stored/stored_table.h"

namespace msprobe::server {
namespace {

// Null: the set has none of this name.
const v1::Rule* FindRule(const v1::RuleSet& rules, const std::string& name) {
  const auto found = std::find_if(rules.rules().begin(), rules.rules().end(),
                                  [&](const v1::Rule& rule) { return rule.name() == name; });
  return found == rules.rules().end() ? nullptr : &*found;
}

}  // namespace

std::unique_ptr<StepMonitor> MakeRuleWatch(const MonitorParts& parts) { return std::make_unique<RuleWatch>(parts); }

RuleWatch::RuleWatch(const MonitorParts& parts)
    : store_(parts.store),
      metrics_(parts.metrics),
      rules_(parts.rules),
      notices_(Notices::Make(parts.store, parts.metrics, parts.notices)),
      layouts_(TableLayouts::kWatchedRows),
      workers_(1),
      captures_(parts.ask == nullptr ? nullptr : std::make_unique<DeeperCaptures>(parts.store, parts.ask)) {}

absl::Status RuleWatch::Begin(Sessions* sessions) {
  sessions_ = sessions;
  auto runs = store_->catalogue().Runs();
  if (!runs.ok()) return runs.status();
  for (const storage::RunRow& run : *runs) {
    if (absl::Status status = EndAlarms(run.number()); !status.ok()) return status;
  }
  return notices_ == nullptr ? absl::OkStatus() : notices_->Begin();
}

void RuleWatch::Stop() {
  if (captures_ != nullptr) captures_->Stop();
  workers_.Stop();
  if (notices_ != nullptr) notices_->Stop();
}

void RuleWatch::OnSessionClosed(const storage::SessionRow& session) {
  workers_.Add("", [this, run = session.run()] {
    if (absl::Status status = EndAlarms(run); !status.ok()) {
      LogWarning("alarms of a run that has ended go on: {}", status.ToString());
    }
  });
}

void RuleWatch::OnScalars(const std::string& session, const std::vector<ScalarPoint>& points) {
  int64_t bytes = 0;
  for (const ScalarPoint& point : points) bytes += static_cast<int64_t>(sizeof(point) + point.series.size());
  if (waiting_bytes_.fetch_add(bytes) >= kMaxWaiting) {
    waiting_bytes_ -= bytes;
    metrics_->Add(Metric::kRulesSkipped, 1, {"scalars"});
    return;
  }
  workers_.Add("", [this, session, points, bytes] {
    waiting_bytes_ -= bytes;
    if (absl::Status status = LookAtScalars(session, points); !status.ok()) {
      LogWarning("rules did not see scalars: {}", status.ToString());
    }
  });
}

void RuleWatch::OnResponses(const std::string& session, const std::vector<ResponseToken>& tokens) {
  int64_t bytes = 0;
  for (const ResponseToken& each : tokens) bytes += static_cast<int64_t>(sizeof(each) + each.request.size());
  if (waiting_bytes_.fetch_add(bytes) >= kMaxWaiting) {
    waiting_bytes_ -= bytes;
    metrics_->Add(Metric::kRulesSkipped, 1, {"responses"});
    return;
  }
  workers_.Add("", [this, session, tokens, bytes] {
    waiting_bytes_ -= bytes;
    if (absl::Status status = LookAtResponses(session, tokens); !status.ok()) {
      LogWarning("rules did not see tokens of replies: {}", status.ToString());
    }
  });
}

void RuleWatch::OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State) {
  if (waiting_steps_.fetch_add(1) >= kMaxSteps) {
    --waiting_steps_;
    metrics_->Add(Metric::kRulesSkipped, 1, {"steps"});
    return;
  }
  workers_.Add("", [this, session, step] {
    --waiting_steps_;
    if (absl::Status status = LookAtStep(session, step); !status.ok()) {
      LogWarning("rules did not see step {}: {}", step, status.ToString());
    }
  });
}

absl::StatusOr<RunRules*> RuleWatch::RulesOf(const storage::SessionRow& session) {
  auto own = Alarms(&store_->database()).Rules(session.run());
  if (!own.ok()) return own.status();
  // What a later version stored may have kinds that this one does not know.
  const bool are_own = own->has_value() && CheckRules(**own).ok();
  const v1::RuleSet& rules = are_own ? **own : rules_;
  Watched& watched = runs_[session.run()];
  watched.used = ++used_;
  const bool are_same = watched.rules != nullptr && watched.are_own == are_own &&
                        (!are_own || google::protobuf::util::MessageDifferencer::Equals(watched.rules->rules(), rules));
  if (!are_same) {
    auto alarms = Alarms(&store_->database()).Of(session.run());
    if (!alarms.ok()) return alarms.status();
    watched.rules = std::make_unique<RunRules>(rules, *alarms);
    watched.are_own = are_own;
  }
  if (runs_.size() > kMaxRuns) {
    runs_.erase(std::min_element(runs_.begin(), runs_.end(),
                                 [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
  }
  return watched.rules.get();
}

absl::Status RuleWatch::LookAtScalars(const std::string& session, const std::vector<ScalarPoint>& points) {
  auto row = store_->database().Find<storage::SessionRow>(SessionKey(session));
  if (!row.ok() || !row->has_value()) return row.status();
  auto rules = RulesOf(**row);
  if (!rules.ok()) return rules.status();
  const uint32_t rank = RankCode((*row)->hello().rank());
  (*rules)->LookAtScalars(session, rank, points, store_->Now());
  uint32_t step = 0;
  for (const ScalarPoint& point : points) step = std::max(step, point.step);
  (*rules)->NoteStep(rank, step, store_->Now());
  if (const std::vector<std::string> given_up = (*rules)->TakeGivenUp(); !given_up.empty()) {
    metrics_->Add(Metric::kRulesSkipped, static_cast<double>(given_up.size()), {"shards"});
    LogWarning("rules of run {} did not see {} steps of tensors; {}", (*row)->hello().run(), given_up.size(),
               given_up.front());
  }
  return Keep(**row, **rules, nullptr);
}

absl::Status RuleWatch::LookAtResponses(const std::string& session, const std::vector<ResponseToken>& tokens) {
  auto row = store_->database().Find<storage::SessionRow>(SessionKey(session));
  if (!row.ok() || !row->has_value()) return row.status();
  auto rules = RulesOf(**row);
  if (!rules.ok()) return rules.status();
  const std::string& run = (*row)->hello().run();
  const uint32_t rank = RankCode((*row)->hello().rank());
  double judged = 0, alone = 0;
  for (const ResponseToken& each : tokens) {
    if (each.token.has_value()) (each.token->has_logprobs ? judged : alone) += 1;
  }
  if (judged > 0) metrics_->Add(Metric::kResponseTokens, judged, {run, "judged"});
  if (alone > 0) metrics_->Add(Metric::kResponseTokens, alone, {run, "tokens_alone"});
  for (const core::ResponseFault fault : (*rules)->LookAtResponses(session, rank, tokens, store_->Now())) {
    metrics_->Add(Metric::kIllResponses, 1, {run, std::string(core::NameOf(fault))});
  }
  return Keep(**row, **rules, nullptr);
}

absl::Status RuleWatch::LookAtStep(const std::string& session, uint32_t step) {
  auto row = store_->database().Find<storage::SessionRow>(SessionKey(session));
  if (!row.ok() || !row->has_value() || IsImport(**row)) return row.status();
  const StepKey key{(*row)->run(), RankCode((*row)->hello().rank()), step, (*row)->epoch()};
  auto summary = store_->database().Find<storage::StepRow>(key.Encode());
  if (!summary.ok() || !summary->has_value()) return summary.status();  // the run was deleted
  auto rules = RulesOf(**row);
  if (!rules.ok()) return rules.status();
  (*rules)->NoteStep(key.rank, step, store_->Now());
  for (const std::string& golden : (*rules)->Goldens()) {
    if (absl::Status status = LookAtSigns(**row, step, golden, **rules); !status.ok()) {
      LogWarning("the signs of step {} are not held against run {}: {}", step, golden, status.ToString());
    }
  }
  if (!(*rules)->WantsTensors((*summary)->nan_tensors() + (*summary)->inf_tensors() > 0)) {
    return Keep(**row, **rules, nullptr);
  }
  auto blocks = store_->steps().OpenBlocks(key, **summary);
  if (!blocks.ok()) return blocks.status();
  auto source = ReadStoredTable(*std::move(blocks), {.stacks = false, .construct = false}, layouts_);
  if (!source.ok()) return source.status();
  (*rules)->LookAtTensors(session, key.rank, step, (*source)->table(), store_->Now());
  return Keep(**row, **rules, &key);
}

absl::Status RuleWatch::LookAtSigns(const storage::SessionRow& session, uint32_t step, const std::string& golden,
                                    RunRules& rules) {
  if (session.hello().settings().task() != kGradProbe || golden == session.hello().run()) return absl::OkStatus();
  auto target = store_->steps().Open(session.hello().run(), step, session.hello().rank(), session.epoch());
  if (!target.ok()) return target.status();
  auto theirs = OpenGolden(golden, step, session.hello().rank());
  if (theirs.status().code() == absl::StatusCode::kNotFound) return absl::OkStatus();
  if (!theirs.ok()) return theirs.status();
  if ((*theirs)->state() == v1::StepSummary::OPEN) return absl::OkStatus();  // it is still coming
  auto found = CompareSigns(**target, **theirs);
  if (!found.ok()) return found.status();
  if (found->parameters.empty()) return absl::OkStatus();
  found->parameters.push_back(SummaryOf(found->parameters));
  rules.LookAtSigns(session.session(), RankCode(session.hello().rank()), step, golden, found->parameters,
                    store_->Now());
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RecordSource>> RuleWatch::OpenGolden(const std::string& run, uint32_t step,
                                                                    const v1::Rank& rank) const {
  if (rank.kind() == v1::Rank::RANK) return store_->steps().Open(run, step, rank);
  // Numbers of processes differ: where the golden run has one only, it is that.
  auto row = store_->catalogue().FindRun(run);
  if (!row.ok()) return row.status();
  auto steps = store_->steps().Of(row->number());
  if (!steps.ok()) return steps.status();
  std::set<uint32_t> ranks;
  for (const auto& [key, summary] : *steps) {
    if (key.step == step) ranks.insert(key.rank);
  }
  if (ranks.size() != 1) return absl::NotFoundError(Cat("run ", run, " has ", ranks.size(), " ranks at the step"));
  return store_->steps().Open(run, step, RankOfCode(*ranks.begin()));
}

absl::Status RuleWatch::Keep(const storage::SessionRow& session, RunRules& rules, const StepKey* key) {
  std::vector<v1::Alarm*> changed, raised;
  for (const RunRules::Changed& each : rules.TakeChanged()) {
    if (each.has_other_first && key != nullptr) AddStack(*key, *each.alarm);
    changed.push_back(each.alarm);
    if (each.is_new) raised.push_back(each.alarm);
  }
  absl::Status status = DecideCaptures(session.run(), raised, rules.rules());
  if (status.ok()) status = Put(session.run(), changed, rules.rules());
  if (!status.ok()) return status;
  for (const v1::Alarm* alarm : raised) {
    metrics_->Add(Metric::kAlarms, 1, {session.hello().run(), alarm->rule()});
    const v1::Rule* const rule = FindRule(rules.rules(), alarm->rule());
    if (rule == nullptr || !rule->silent()) TellProgram(session.session(), *alarm);
    if (captures_ == nullptr || rule == nullptr || !rule->has_capture()) continue;
    captures_->Begin(session.hello().run(), *rule, *alarm,
                     [this, run = session.run(), number = alarm->number()](const v1::Alarm::Captured& captured) {
                       workers_.Add("", [this, run, number, captured] {
                         if (absl::Status noted = NoteCaptured(run, number, captured); !noted.ok()) {
                           LogWarning("what was captured for alarm {} is not noted: {}", number, noted.ToString());
                         }
                       });
                     });
  }
  return absl::OkStatus();
}

absl::Status RuleWatch::DecideCaptures(uint32_t run, const std::vector<v1::Alarm*>& raised, const v1::RuleSet& rules) {
  for (v1::Alarm* alarm : raised) {
    const v1::Rule* const rule = FindRule(rules, alarm->rule());
    if (captures_ == nullptr || rule == nullptr || !rule->has_capture()) continue;
    auto earlier = Alarms(&store_->database()).Of(run);
    if (!earlier.ok()) return earlier.status();
    for (v1::Alarm& other : *earlier) {
      auto bytes = captures_->BytesOf(run, other.captured());
      if (!bytes.ok()) return bytes.status();
      if (other.has_captured()) other.mutable_captured()->set_bytes(*bytes);
    }
    captures_->Decide(*rule, *earlier, *alarm);
  }
  return absl::OkStatus();
}

absl::Status RuleWatch::NoteCaptured(uint32_t run, uint32_t number, const v1::Alarm::Captured& captured) {
  auto stored = Alarms(&store_->database()).Find(run, number);
  if (!stored.ok() || !stored->has_value()) return stored.status();
  auto own = Alarms(&store_->database()).Rules(run);
  if (!own.ok()) return own.status();
  const auto watched = runs_.find(run);
  v1::Alarm* const latest = watched == runs_.end() ? nullptr : watched->second.rules->Latest(number);
  v1::Alarm& alarm = latest != nullptr ? *latest : **stored;
  *alarm.mutable_captured() = captured;
  return Put(run, {&alarm}, own->has_value() ? **own : rules_);
}

absl::Status RuleWatch::EndAlarms(uint32_t run) {
  auto alarms = Alarms(&store_->database()).Of(run);
  if (!alarms.ok()) return alarms.status();
  const absl::Time now = store_->Now();
  std::vector<v1::Alarm*> ended;
  for (v1::Alarm& alarm : *alarms) {
    if (alarm.ended_unix_us() != 0) continue;
    alarm.set_ended_unix_us(absl::ToUnixMicros(now));
    ended.push_back(&alarm);
  }
  if (ended.empty()) return absl::OkStatus();
  auto sessions = store_->catalogue().Sessions(run);
  if (!sessions.ok()) return sessions.status();
  const bool is_open = std::any_of(sessions->begin(), sessions->end(), [](const storage::SessionRow& session) {
    return session.state() == storage::SessionRow::OPEN;
  });
  if (is_open) return absl::OkStatus();
  auto own = Alarms(&store_->database()).Rules(run);
  if (!own.ok()) return own.status();
  if (const auto found = runs_.find(run); found != runs_.end()) found->second.rules->EndAlarms(now);
  return Put(run, ended, own->has_value() ? **own : rules_);
}

absl::Status RuleWatch::Put(uint32_t run, const std::vector<v1::Alarm*>& alarms, const v1::RuleSet& rules) {
  if (alarms.empty()) return absl::OkStatus();
  const auto is_told = [&](const v1::Alarm& alarm) {
    const v1::Rule* const rule = FindRule(rules, alarm.rule());
    return notices_ != nullptr && (rule == nullptr || !rule->silent());
  };
  ChangeSet changes;
  std::map<uint32_t, bool> told;  // number -> soon
  for (v1::Alarm* alarm : alarms) {
    if (captures_ != nullptr && alarm->ended_unix_us() != 0 && alarm->has_captured()) {
      auto bytes = captures_->BytesOf(run, alarm->captured());
      if (!bytes.ok()) return bytes.status();
      alarm->mutable_captured()->set_bytes(*bytes);
    }
    Alarms::Put(run, *alarm, changes);
    if (!is_told(*alarm)) continue;
    auto is_new = notices_->AddDue(run, *alarm, changes);
    if (!is_new.ok()) return is_new.status();
    told[alarm->number()] = *is_new || alarm->ended_unix_us() != 0;
  }
  if (absl::Status status = store_->database().Write(changes); !status.ok()) return status;
  for (const auto& [number, soon] : told) notices_->Tell(run, number, soon);
  return absl::OkStatus();
}

void RuleWatch::TellProgram(const std::string& session, const v1::Alarm& alarm) const {
  const auto live = sessions_ == nullptr ? nullptr : sessions_->Find(session);
  if (live == nullptr) return;
  v1::AlarmRaised raised;
  raised.set_number(alarm.number());
  raised.set_rule(alarm.rule());
  raised.set_step(alarm.step());
  raised.set_series(alarm.series());
  raised.set_why(alarm.why());
  live->Tell(raised);
}

void RuleWatch::AddStack(const StepKey& key, v1::Alarm& alarm) {
  auto summary = store_->database().Find<storage::StepRow>(key.Encode());
  if (!summary.ok() || !summary->has_value()) return;
  auto blocks = store_->steps().OpenBlocks(key, **summary);
  if (!blocks.ok()) return;
  auto source = ReadStoredTable(*std::move(blocks), {.stacks = true, .construct = false}, layouts_);
  if (!source.ok()) return;
  const StepTable& table = (*source)->table();
  const std::string_view tensor = std::string_view(alarm.series()).substr(0, alarm.series().rfind(':'));
  for (size_t row = 0; row < table.rows.size(); ++row) {
    if (table.rows[row].name != tensor) continue;
    const Entry& entry = table.entries[table.EntryOf(static_cast<uint32_t>(row))];
    if (entry.stack < 0) return;
    for (const std::string& line : table.stacks[static_cast<size_t>(entry.stack)]) alarm.add_stack(line);
    return;
  }
}

void RuleWatch::Forget(const std::string&) {
  // A run's number is not given again, so what is remembered of a deleted one ages out.
}

}  // namespace msprobe::server
