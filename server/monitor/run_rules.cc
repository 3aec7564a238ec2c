#include "server/monitor/run_rules.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "absl/strings/str_join.h"
#include "server/analysis/divergence/overflow.h"
#include "server/analysis/table/statistic.h"
#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/monitor/rules/rule_kinds.h"

namespace msprobe::server {
namespace {

struct NamedStatistic {
  std::string_view name;
  Statistic statistic;
};
constexpr std::array kNamed = {
    NamedStatistic{"norm", Statistic::kNorm},         NamedStatistic{"max", Statistic::kMax},
    NamedStatistic{"min", Statistic::kMin},           NamedStatistic{"mean", Statistic::kMean},
    NamedStatistic{"variance", Statistic::kVariance}, NamedStatistic{"zero_share", Statistic::kZeroShare}};

// A pattern may take a statistic of a tensor if one of their endings fits it.
bool MayTakeTensors(const v1::Rule& rule) {
  const std::string_view pattern = PatternOf(rule);
  return pattern.find(':') != std::string_view::npos || pattern.ends_with('*') || pattern.ends_with(']');
}

// The row where the NaN or infinity of a step begins to be trouble; behind all rows: none is.
uint32_t FirstTrouble(const StepTable& table) {
  const std::vector<OverflowOrigin> origins = FindOverflowOrigins(table);
  if (origins.empty()) return FindReceived(table).value_or(static_cast<uint32_t>(table.rows.size()));
  return std::ranges::min(origins, {}, &OverflowOrigin::row).row;
}

}  // namespace

RunRules::RunRules(const v1::RuleSet& rules, const std::vector<v1::Alarm>& alarms) : rules_(rules) {
  static_assert(kNamed.size() == kStatisticsOfTensors);
  episodes_.resize(static_cast<size_t>(rules_.rules_size()));
  for (int i = 0; i < rules_.rules_size(); ++i) {
    const v1::Rule& rule = rules_.rules(i);
    made_.push_back(KindOf(rule).make(rule));
    const RuleSubject subject = KindOf(rule).subject;
    const bool names_statistic = PatternOf(rule).find(':') != std::string_view::npos;
    if (rule.has_not_finite()) {
      wants_overflow_ |= !rule.scalars_only() && MayTakeTensors(rule);
    } else if (!rule.scalars_only()) {
      wants_tensors_ |= subject == RuleSubject::kTensors || (subject == RuleSubject::kSeries && names_statistic);
    }
    for (const v1::Alarm& alarm : alarms) {
      if (alarm.rule() != rule.name()) continue;
      Episode& episode = episodes_[static_cast<size_t>(i)];
      episode = Episode();  // of the rule's latest alarm alone
      episode.alarm = alarm;
      episode.named.insert(alarm.series());
      episode.named.insert(alarm.others().begin(), alarm.others().end());
      for (const v1::Rank& rank : alarm.ranks()) {
        episode.named.insert(Cat(" ", RankCode(rank)));
        episode.loud.insert(RankCode(rank));
      }
    }
  }
  for (const v1::Alarm& alarm : alarms) last_number_ = std::max(last_number_, alarm.number());
}

std::unique_ptr<RunRules::Series> RunRules::MakeSeries(const WatchedSeries& of, bool is_norm, bool is_tensor) {
  auto series = std::make_unique<Series>();
  series->name = std::string(of.name);
  for (size_t i = 0; i < made_.size(); ++i) {
    const v1::Rule& rule = rules_.rules(static_cast<int>(i));
    if (rule.has_not_finite() && is_tensor && !is_norm) continue;
    // Steps are not read for such a rule, only now and then for another.
    if (is_tensor && !rule.has_not_finite() && PatternOf(rule).find(':') == std::string_view::npos) continue;
    if (is_tensor && (rule.scalars_only() || KindOf(rule).subject != RuleSubject::kSeries)) continue;
    if (!Takes(rule, of.name)) continue;
    if (std::unique_ptr<SeriesWatch> watch = made_[i]->Watch(of); watch != nullptr) {
      series->watches.emplace_back(i, std::move(watch));
    }
  }
  return series->watches.empty() ? nullptr : std::move(series);
}

std::unique_ptr<RunRules::Tensor> RunRules::MakeTensor(std::string_view name, const std::string& session,
                                                       uint32_t rank) {
  auto tensor = std::make_unique<Tensor>();
  for (size_t i = 0; i < kNamed.size(); ++i) {
    const std::string series = Cat(name, ":", kNamed[i].name);
    tensor->statistics[i] = MakeSeries({.name = series, .session = session, .rank = rank}, i == 0, true);
  }
  for (size_t i = 0; i < made_.size(); ++i) {
    const v1::Rule& rule = rules_.rules(static_cast<int>(i));
    if (KindOf(rule).subject != RuleSubject::kTensors || !Takes(rule, name)) continue;
    if (auto watch = made_[i]->WatchTensor(name); watch != nullptr) tensor->watches.emplace_back(i, std::move(watch));
  }
  if (!tensor->watches.empty()) tensor->whole.name = std::string(name);
  return tensor;
}

RunRules::Session& RunRules::SessionOf(const std::string& session, uint32_t rank) {
  const auto [found, is_new] = sessions_.try_emplace(session);
  found->second.rank = rank;
  if (!is_new) return found->second;
  absl::erase_if(sessions_, [&](const auto& other) { return other.second.rank == rank && other.first != session; });
  std::vector<ReplyKey> gone;
  for (const auto& [key, reply] : replies_) {
    if (!sessions_.contains(key.first)) gone.push_back(key);
  }
  for (const ReplyKey& key : gone) Forget(key);
  return sessions_[session];
}

RunRules::Scalar& RunRules::ScalarOf(Session& of, const std::string& session, const std::string& name) {
  ScalarSeries::Entry* found = of.scalars.Find(name);
  if (found == nullptr) {
    Scalar made = MakeScalar({.name = name, .session = session, .rank = of.rank});
    found = &*of.scalars.by_name.emplace(name, std::move(made)).first;
    of.scalars.CameNext(found);
  }
  return found->second;
}

RunRules::Scalar RunRules::MakeScalar(const WatchedSeries& of) {
  Scalar scalar;
  const std::optional<ShardName> shard = ShardName::Of(of.name);
  if (!shard.has_value() || WholeStatistics(shard->statistic).empty()) {
    scalar.series = MakeSeries(of, false, false);
    return scalar;
  }
  auto& [group, tensors] = *groups_.try_emplace(std::string(shard->group)).first;
  std::unique_ptr<ShardJoin>& join = tensors.joins[Cat(shard->tensor, "/", shard->whole)];
  if (join == nullptr) join = std::make_unique<ShardJoin>(*shard);
  scalar.shard = std::make_unique<Shard>(Shard{
      .join = join.get(), .group = &group, .statistic = std::string(shard->statistic), .elements = shard->elements});
  return scalar;
}

void RunRules::LookAtScalars(const std::string& session, uint32_t rank, const std::vector<ScalarPoint>& points,
                             absl::Time now) {
  Session& of = SessionOf(session, rank);
  for (const ScalarPoint& point : points) {
    const Scalar& scalar = ScalarOf(of, session, point.series);
    const Place place{.rank = rank, .step = point.step, .position = kScalarPosition, .now = now};
    if (scalar.series != nullptr) Look(*scalar.series, place, point.value);
    if (scalar.shard != nullptr) LookAtShard(*scalar.shard, place, point.value);
  }
}

void RunRules::LookAtShard(const Shard& shard, const Place& place, double value) {
  ShardGroup& group = groups_.at(*shard.group);
  const auto wholes = shard.join->Add(shard.statistic, place.rank, shard.elements, place.step, value);
  for (const ShardJoin::GivenUp& each : shard.join->TakeGivenUp()) {
    std::vector<std::string> missing;
    for (uint32_t rank : each.missing) missing.push_back(RankName(RankOfCode(rank)));
    given_up_.push_back(
        Cat(shard.join->tensor(), " at step ", each.step, " lacks the shards of ", absl::StrJoin(missing, ", ")));
  }
  if (wholes.empty()) return;
  Place of_whole = place;
  of_whole.rank = shard.join->first_rank();
  if (place.step < group.last_step) group.wholes = Session();  // the job was restarted
  group.wholes.rank = of_whole.rank;
  group.last_step = place.step;
  for (const ShardJoin::Point& whole : wholes) {
    const Scalar& scalar = ScalarOf(group.wholes, *shard.group, whole.series);
    if (scalar.series != nullptr) Look(*scalar.series, of_whole, whole.value);
  }
}

std::vector<std::string> RunRules::TakeGivenUp() { return std::exchange(given_up_, {}); }

void RunRules::LookAtTensors(const std::string& session, uint32_t rank, uint32_t step, const StepTable& table,
                             absl::Time now) {
  Session& of = SessionOf(session, rank);
  std::optional<uint32_t> first_trouble;
  const auto is_before_trouble = [&](uint32_t row) {
    if (!first_trouble.has_value()) first_trouble = FirstTrouble(table);
    return row < *first_trouble;
  };
  for (size_t row = 0; row < table.rows.size(); ++row) {
    const Row& tensor = table.rows[row];
    if (!tensor.is_tensor) continue;
    auto found = of.tensors.find(absl::string_view(tensor.name.data(), tensor.name.size()));
    if (found == of.tensors.end()) {
      found = of.tensors.emplace(std::string(tensor.name), MakeTensor(tensor.name, session, rank)).first;
    }
    Tensor& watched = *found->second;
    Place place{.rank = rank, .step = step, .position = static_cast<uint32_t>(row), .now = now};
    for (size_t i = 0; i < kNamed.size(); ++i) {
      if (watched.statistics[i] == nullptr) continue;
      const std::optional<double> value = StatisticOf(table, tensor, kNamed[i].statistic);
      if (!value.has_value()) continue;
      place.is_expected = !std::isfinite(*value) && is_before_trouble(place.position);
      Look(*watched.statistics[i], place, *value);
    }
    if (watched.watches.empty()) continue;
    if (const auto norm = StatisticOf(table, tensor, Statistic::kNorm)) watched.whole.recent.Add(step, *norm);
    for (const auto& [rule, watch] : watched.watches) {
      if (const auto offence = watch->Look(table, tensor)) {
        Offend(rule, watched.whole, place, offence->value, offence->offence);
      }
    }
  }
}

std::set<std::string> RunRules::Goldens() const {
  std::set<std::string> goldens;
  for (const v1::Rule& rule : rules_.rules()) {
    if (rule.has_sign_drop()) goldens.insert(rule.sign_drop().golden());
  }
  return goldens;
}

void RunRules::LookAtSigns(const std::string& session, uint32_t rank, uint32_t step, const std::string& golden,
                           const std::vector<SignSimilarity>& similarities, absl::Time now) {
  Session& of = SessionOf(session, rank);
  uint32_t position = 0;
  for (const SignSimilarity& each : similarities) {
    ++position;
    if (each.elements == 0) continue;  // a rank's empty shard
    const auto [found, is_new] = of.signs.try_emplace(Cat(golden, "/", each.parameter));
    if (is_new) {
      found->second = std::make_unique<Series>();
      found->second->name = Cat(each.parameter == kSignSummary ? "" : "Parameter.", each.parameter, kSignSimilarity);
      for (size_t i = 0; i < made_.size(); ++i) {
        const v1::Rule& rule = rules_.rules(static_cast<int>(i));
        if (!rule.has_sign_drop() || rule.sign_drop().golden() != golden || !Takes(rule, found->second->name)) continue;
        found->second->watches.emplace_back(
            i, made_[i]->Watch({.name = found->second->name, .session = session, .rank = rank}));
      }
    }
    Look(*found->second, {.rank = rank, .step = step, .position = position - 1, .now = now}, each.share());
  }
}

RunRules::Reply& RunRules::ReplyOf(const ReplyKey& key) {
  if (const auto found = replies_.find(key); found != replies_.end()) return *found->second;
  if (replies_.size() >= kMostReplies) Forget(ReplyKey(by_use_.begin()->second));
  Reply& reply = *replies_.emplace(key, std::make_unique<Reply>()).first->second;
  reply.series.name = Cat("response/", key.second);
  for (size_t i = 0; i < made_.size(); ++i) {
    if (!Takes(rules_.rules(static_cast<int>(i)), reply.series.name)) continue;
    if (auto watch = made_[i]->WatchReply(); watch != nullptr) reply.watches.emplace_back(i, std::move(watch));
  }
  return reply;
}

void RunRules::Forget(const ReplyKey& reply) {
  const auto found = replies_.find(reply);
  by_use_.erase(found->second->used);
  replies_.erase(found);
}

std::vector<core::ResponseFault> RunRules::LookAtResponses(const std::string& session, uint32_t rank,
                                                           const std::vector<ResponseToken>& tokens, absl::Time now) {
  SessionOf(session, rank);
  std::vector<core::ResponseFault> faults;
  for (const ResponseToken& each : tokens) {
    const core::SampledToken* const token = each.token.has_value() ? &*each.token : nullptr;
    const ReplyKey key(session, each.request);
    if (token == nullptr && !replies_.contains(key)) continue;
    Reply& reply = ReplyOf(key);
    by_use_.erase(std::exchange(reply.used, ++used_));
    by_use_.emplace(reply.used, key);
    if (token != nullptr) reply.series.recent.Add(each.step, static_cast<double>(token->id));
    for (const auto& [rule, watch] : reply.watches) {
      const auto found = watch->Look(token);
      if (!found.has_value()) continue;
      const Place place{.rank = rank, .step = each.step, .position = kScalarPosition, .now = now};
      Offend(rule, reply.series, place, found->value, found->offence);
      if (reply.found.insert(found->fault).second) faults.push_back(found->fault);
    }
    if (token == nullptr) Forget(key);
  }
  return faults;
}

void RunRules::Recent::Add(uint32_t step, double value) {
  const size_t at = added_++ % kRecent;
  steps_[at] = step;
  values_[at] = value;
}

void RunRules::Recent::AddTo(v1::Alarm& alarm) const {
  for (uint32_t i = added_ - std::min<uint32_t>(added_, kRecent); i != added_; ++i) {
    alarm.add_recent_step(steps_[i % kRecent]);
    alarm.add_recent_value(values_[i % kRecent]);
  }
}

RunRules::ScalarSeries::Entry* RunRules::ScalarSeries::Find(const std::string& name) {
  const size_t at = next == order.size() ? 0 : next;
  if (at < order.size() && order[at]->first == name) {
    next = at + 1;
    return order[at];
  }
  const auto found = by_name.find(name);
  if (found == by_name.end()) return nullptr;
  CameNext(&*found);
  return &*found;
}

void RunRules::ScalarSeries::CameNext(Entry* entry) {
  if (next == order.size() && order.size() < by_name.size()) {
    order.push_back(entry);
  } else {
    if (next == order.size()) next = 0;
    order[next] = entry;
  }
  ++next;
}

void RunRules::Look(Series& series, const Place& place, double value) {
  series.recent.Add(place.step, value);
  for (const auto& [rule, watch] : series.watches) {
    // A mask of minus infinity, say, is as its program wants it.
    if (place.is_expected && rules_.rules(static_cast<int>(rule)).has_not_finite()) continue;
    const std::optional<Offence> offence = watch->Look(place.step, value);
    if (!offence.has_value()) continue;
    if (offence->is_doubtful && !IsConfirmed(rule, place)) {
      Doubt(rule, series, place, value, *offence);
    } else if (const auto& elsewhere = offence->elsewhere; elsewhere.has_value()) {
      Place at = place;
      at.rank = elsewhere->rank;
      at.step = elsewhere->step;
      Offend(rule, Series{.name = series.name, .watches = {}, .recent = {}}, at, elsewhere->value, *offence);
    } else {
      Confirm(rule, place);
      Offend(rule, series, place, value, *offence);
    }
  }
}

bool RunRules::IsConfirmed(size_t rule, const Place& place) const {
  const auto& last = episodes_[rule].last;
  const auto found = last.find(place.rank);
  return found != last.end() && found->second <= place.step + 1 && place.step <= found->second + 1;
}

void RunRules::Doubt(size_t rule, const Series& series, const Place& place, double value, const Offence& offence) {
  const auto [found, is_new] = doubts_.try_emplace({rule, place.rank});
  Doubtful& doubt = found->second;
  const bool goes_on = !is_new && place.step >= doubt.last_step && place.step <= doubt.last_step + 1;
  doubt.last_step = place.step;
  if (goes_on && std::pair(doubt.place.step, doubt.place.position) <= std::pair(place.step, place.position)) return;
  doubt.place = place;
  doubt.value = value;
  doubt.offence = offence;
  doubt.series = Series{.name = series.name, .watches = {}, .recent = series.recent};
}

void RunRules::Confirm(size_t rule, const Place& place) {
  const auto found = doubts_.find({rule, place.rank});
  if (found == doubts_.end()) return;
  const Doubtful doubt = std::move(found->second);
  doubts_.erase(found);
  if (place.step < doubt.last_step || place.step > doubt.last_step + 1) return;
  Offend(rule, doubt.series, doubt.place, doubt.value, doubt.offence);
}

void RunRules::Offend(size_t rule, const Series& series, const Place& place, double value, const Offence& offence) {
  Episode& episode = episodes_[rule];
  const v1::Alarm& alarm = episode.alarm;
  const auto known = episode.last.find(place.rank);
  const bool is_known = known != episode.last.end();
  const uint32_t last = is_known ? known->second : alarm.last_step();
  const bool is_ahead = place.step > last && place.step - last > kQuiet;
  const bool is_behind = is_known && place.step < last && last - place.step > kQuiet;
  if (alarm.number() == 0 || is_ahead || is_behind) Begin(episode, rule, place);
  episode.last[place.rank] = place.step;
  episode.loud.insert(place.rank);
  episode.alarm.clear_ended_unix_us();
  const auto order = std::tuple(place.step, place.position, place.rank);
  if (episode.alarm.offences() == 0 || order < std::tuple(alarm.step(), episode.position, RankCode(alarm.rank()))) {
    Show(episode, series, place, value, offence);
  }
  v1::Alarm& changed = episode.alarm;
  changed.set_offences(changed.offences() + 1);
  changed.set_last_step(std::max(changed.last_step(), place.step));
  episode.changed = true;
  if (changed.ranks_size() < kRecent && episode.named.insert(Cat(" ", place.rank)).second) {
    *changed.add_ranks() = RankOfCode(place.rank);
  }
  if (changed.others_size() < kRecent && episode.named.insert(series.name).second) changed.add_others(series.name);
}

void RunRules::NoteStep(uint32_t rank, uint32_t step, absl::Time now) {
  for (Episode& episode : episodes_) {
    if (!episode.goes_on()) continue;
    const auto known = episode.last.find(rank);
    const uint32_t last = known != episode.last.end() ? known->second : episode.alarm.last_step();
    if (step <= last || step - last <= kQuiet || episode.loud.erase(rank) == 0 || !episode.loud.empty()) continue;
    episode.alarm.set_ended_unix_us(absl::ToUnixMicros(now));
    episode.changed = true;
  }
}

void RunRules::EndAlarms(absl::Time now) {
  for (Episode& episode : episodes_) {
    if (!episode.goes_on()) continue;
    episode.alarm.set_ended_unix_us(absl::ToUnixMicros(now));
    episode.loud.clear();
  }
}

void RunRules::Begin(Episode& episode, size_t rule, const Place& place) {
  if (episode.goes_on()) {
    episode.alarm.set_ended_unix_us(absl::ToUnixMicros(place.now));
    episode.changed = true;
  }
  if (episode.changed) ended_.push_back(std::make_unique<Episode>(std::move(episode)));
  episode = Episode();
  const v1::Rule& by = rules_.rules(static_cast<int>(rule));
  episode.alarm.set_number(++last_number_);
  episode.alarm.set_rule(by.name());
  episode.alarm.set_kind(std::string(KindOf(by).name));
  episode.alarm.set_raised_unix_us(absl::ToUnixMicros(place.now));
  episode.is_new = true;
}

void RunRules::Show(Episode& episode, const Series& series, const Place& place, double value, const Offence& offence) {
  v1::Alarm& alarm = episode.alarm;
  // What was first before is one of the others now.
  if (alarm.offences() > 0 && alarm.series() != series.name && alarm.others_size() < kRecent) {
    alarm.add_others(alarm.series());
  }
  alarm.set_step(place.step);
  *alarm.mutable_rank() = RankOfCode(place.rank);
  alarm.set_series(series.name);
  alarm.set_value(value);
  alarm.set_why(offence.why);
  alarm.set_limit(offence.limit);
  alarm.clear_recent_step();
  alarm.clear_recent_value();
  alarm.clear_stack();
  series.recent.AddTo(alarm);
  episode.named.insert(series.name);
  episode.position = place.position;
  episode.has_other_first = true;
}

v1::Alarm* RunRules::Latest(uint32_t number) {
  for (Episode& episode : episodes_) {
    if (episode.alarm.number() == number) return &episode.alarm;
  }
  return nullptr;
}

std::vector<RunRules::Changed> RunRules::TakeChanged() {
  taken_ = std::move(ended_);
  ended_.clear();
  std::vector<Changed> changed;
  const auto take = [&changed](Episode& episode) {
    if (!std::exchange(episode.changed, false)) return;
    changed.push_back({.alarm = &episode.alarm,
                       .is_new = std::exchange(episode.is_new, false),
                       .has_other_first = std::exchange(episode.has_other_first, false)});
  };
  for (const std::unique_ptr<Episode>& episode : taken_) take(*episode);
  for (Episode& episode : episodes_) take(episode);
  return changed;
}

}  // namespace msprobe::server
