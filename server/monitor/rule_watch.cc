#include "server/monitor/rule_watch.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "google/protobuf/util/message_differencer.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/ingest/session/process_check.h"
#include "server/metrics/log.h"
#include "server/monitor/rules/rule_kinds.h"
#include "server/store/alarms.h"
#include "server/stored/gradient_signs.h"
#include "server/stored/stored_table.h"

namespace msprobe::server {
namespace {

constexpr size_t kLayoutRows = 60'000;  // about 20 MiB

}  // namespace

std::unique_ptr<StepMonitor> MakeRuleWatch(const MonitorParts& parts) {
  return std::make_unique<RuleWatch>(parts.store, parts.metrics, parts.rules);
}

RuleWatch::RuleWatch(Store* store, Metrics* metrics, v1::RuleSet rules)
    : store_(store), metrics_(metrics), rules_(std::move(rules)), layouts_(kLayoutRows), workers_(1) {}

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
  const v1::RuleSet& rules = own->has_value() && CheckRules(**own).ok() ? **own : rules_;
  Watched& watched = runs_[session.run()];
  watched.used = ++used_;
  if (watched.rules == nullptr || !google::protobuf::util::MessageDifferencer::Equals(watched.rules->rules(), rules)) {
    auto alarms = Alarms(&store_->database()).Of(session.run());
    if (!alarms.ok()) return alarms.status();
    watched.rules = std::make_unique<RunRules>(rules, *alarms);
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
  (*rules)->LookAtScalars(session, RankCode((*row)->hello().rank()), points, store_->Now());
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
  ChangeSet changes;
  std::vector<std::string> raised;
  for (const RunRules::Changed& changed : rules.TakeChanged()) {
    v1::Alarm& alarm = *changed.alarm;
    if (changed.has_other_first && key != nullptr) AddStack(*key, alarm);
    Alarms::Put(session.run(), alarm, changes);
    if (changed.is_new) raised.push_back(alarm.rule());
  }
  if (changes.empty()) return absl::OkStatus();
  if (absl::Status status = store_->database().Write(changes); !status.ok()) return status;
  for (const std::string& rule : raised) metrics_->Add(Metric::kAlarms, 1, {session.hello().run(), rule});
  return absl::OkStatus();
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
