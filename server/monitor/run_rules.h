#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "absl/time/time.h"
#include "msprobe/v1/monitor.pb.h"
#include "server/analysis/table/step_table.h"
#include "server/ingest/session/events.h"
#include "server/monitor/rules/rule.h"
#include "server/monitor/shard_join.h"
#include "server/stored/gradient_signs.h"

namespace msprobe::server {

// The rules that watch one run, and what they remember: a watch for each series of each session that a rule takes, and
// the latest alarm of each rule.
//
// 1. A rule's offences are one alarm as long as no more than kQuiet steps lie between two of one rank, and no rank
//    joins that is further ahead. One that is behind joins: ranks that serve requests are at steps of their own.
// 2. An alarm shows its first offence: the least step; in it the tensor that stands first, and scalars behind tensors;
//    of those the least rank. A rank that reports late may still have been first.
// 3. A rank has the watches of one session, that which spoke last: a restarted job is watched anew.
// 4. Of all sessions together the kMostReplies replies that had a token last are remembered.
// 5. A doubtful offence counts once a firm one of the same rule and rank is at its step or the next one.
// 6. Of a tensor that ranks have shards of (ShardName) they see the whole, as a series of the first rank of its group,
//    once all shards of a step have come. Its watches begin anew when its steps do.
// 7. not_finite looks at a tensor's norm alone, which is finite only if every element is. It passes over tensors before
//    the step's first origin of NaN or infinity. In a step without one it passes over those before what another
//    rank sent (FindReceived).
// Threads: one at a time.
class RunRules {
 public:
  static constexpr uint32_t kQuiet = 100;
  static constexpr size_t kMostReplies = 4096;
  static constexpr int kRecent = 16;  // points, ranks and further series that an alarm shows

  // alarms: those that the run has.
  RunRules(const v1::RuleSet& rules, const std::vector<v1::Alarm>& alarms);

  const v1::RuleSet& rules() const { return rules_; }
  // Whether a step's table has to be read for these rules. overflow: it has NaN or infinity.
  bool WantsTensors(bool overflow) const { return wants_tensors_ || (overflow && wants_overflow_); }

  // `session` names the session, `rank` is its RankCode.
  void LookAtScalars(const std::string& session, uint32_t rank, const std::vector<ScalarPoint>& points, absl::Time now);
  void LookAtTensors(const std::string& session, uint32_t rank, uint32_t step, const StepTable& table, absl::Time now);
  // The runs that a rule sign_drop holds this one against.
  std::set<std::string> Goldens() const;
  // The similarity of the step's signs to those of `golden`, by parameter and together.
  void LookAtSigns(const std::string& session, uint32_t rank, uint32_t step, const std::string& golden,
                   const std::vector<SignSimilarity>& similarities, absl::Time now);
  // Faults that were found, once for each reply.
  std::vector<core::ResponseFault> LookAtResponses(const std::string& session, uint32_t rank,
                                                   const std::vector<ResponseToken>& tokens, absl::Time now);
  // The rank has come to a step: what has had no offence for kQuiet steps on any of its ranks has ended.
  void NoteStep(uint32_t rank, uint32_t step, absl::Time now);
  // All alarms have ended, which the caller stores; an offence has one go on as ever. Nothing is forgotten.
  void EndAlarms(absl::Time now);
  // What rules did not see of tensors because shards were missing: one sentence for each step, since the last call.
  std::vector<std::string> TakeGivenUp();
  // The alarms that are new, have ended, or show another offence or more of them, since the last call.
  struct Changed {
    v1::Alarm* alarm = nullptr;  // valid until the next call of a method
    bool is_new = false;
    bool has_other_first = false;  // its first offence is another than before
  };
  std::vector<Changed> TakeChanged();
  // The alarm of this number, if it is the latest of its rule; else null. Valid until the next call of a method.
  v1::Alarm* Latest(uint32_t number);

 private:
  static constexpr size_t kStatisticsOfTensors = 6;
  static constexpr uint32_t kScalarPosition = UINT32_MAX;

  // The latest points of a series. There may be millions of it, so it has no memory of its own.
  class Recent {
   public:
    void Add(uint32_t step, double value);
    // In the order in which they came.
    void AddTo(v1::Alarm& alarm) const;

   private:
    std::array<double, kRecent> values_ = {};
    std::array<uint32_t, kRecent> steps_ = {};
    uint32_t added_ = 0;
  };
  struct Series {
    std::string name;
    std::vector<std::pair<size_t, std::unique_ptr<SeriesWatch>>> watches;  // by number of the rule
    Recent recent;
  };
  // The shard that a series is of.
  struct Shard {
    ShardJoin* join = nullptr;
    const std::string* group = nullptr;  // key of groups_
    std::string statistic;
    uint64_t elements = 0;
  };
  struct Scalar {
    std::unique_ptr<Series> series;  // null: no rule takes it, or it is a shard's
    std::unique_ptr<Shard> shard;    // null: it is none of a shard
  };
  // The series of a session's scalars. Programs log the same names in the same order, so the name that came behind the
  // last one the time before is looked at first: only where it is another one is it searched for.
  struct ScalarSeries {
    absl::node_hash_map<std::string, Scalar> by_name;
    using Entry = std::pair<const std::string, Scalar>;
    std::vector<Entry*> order;
    size_t next = 0;  // of order

    // Null: it is new.
    Entry* Find(const std::string& name);
    void CameNext(Entry* entry);
  };
  // A captured tensor.
  struct Tensor {
    std::array<std::unique_ptr<Series>, kStatisticsOfTensors> statistics;
    Series whole;                                                          // its norms, by its name alone
    std::vector<std::pair<size_t, std::unique_ptr<TensorWatch>>> watches;  // by number of the rule
  };
  struct Reply {
    Series series;
    std::vector<std::pair<size_t, std::unique_ptr<ReplyWatch>>> watches;  // by number of the rule
    std::set<core::ResponseFault> found;
    uint64_t used = 0;
  };
  struct Session {
    uint32_t rank = 0;
    ScalarSeries scalars;
    absl::flat_hash_map<std::string, std::unique_ptr<Series>> signs;  // by golden run and parameter
    absl::flat_hash_map<std::string, std::unique_ptr<Tensor>> tensors;
  };
  // The tensors that one group of ranks has shards of.
  struct ShardGroup {
    Session wholes;
    uint32_t last_step = 0;                                              // that was looked at
    absl::flat_hash_map<std::string, std::unique_ptr<ShardJoin>> joins;  // by tensor and elements
  };
  struct Episode {
    v1::Alarm alarm;  // number 0: the rule has raised none
    uint32_t position = 0;
    bool changed = false, is_new = false, has_other_first = false;
    std::set<std::string> named;        // series and ranks that it shows already
    std::map<uint32_t, uint32_t> last;  // by RankCode, the step of its latest offence
    std::set<uint32_t> loud;            // ranks with an offence and not yet kQuiet steps behind it

    bool goes_on() const { return alarm.number() != 0 && alarm.ended_unix_us() == 0; }
  };
  struct Place {
    uint32_t rank = 0, step = 0, position = 0;
    absl::Time now;
    bool is_expected = false;  // a tensor's NaN or infinity that stands before the trouble of its step (7)
  };

  // The first of the doubtful offences in a row of a rule and rank.
  struct Doubtful {
    Place place;
    Series series;  // without its watches
    double value = 0;
    Offence offence;
    uint32_t last_step = 0;
  };

  Session& SessionOf(const std::string& session, uint32_t rank);
  // Of a session, or of what stands in for one.
  Scalar& ScalarOf(Session& of, const std::string& session, const std::string& name);
  Scalar MakeScalar(const WatchedSeries& of);
  void LookAtShard(const Shard& shard, const Place& place, double value);
  std::unique_ptr<Series> MakeSeries(const WatchedSeries& of, bool is_norm, bool is_tensor);
  std::unique_ptr<Tensor> MakeTensor(std::string_view name, const std::string& session, uint32_t rank);
  using ReplyKey = std::pair<std::string, std::string>;  // session and request
  Reply& ReplyOf(const ReplyKey& key);
  void Forget(const ReplyKey& reply);
  void Look(Series& series, const Place& place, double value);
  // Whether a firm offence of the rule and rank is at the step, or next to it.
  bool IsConfirmed(size_t rule, const Place& place) const;
  void Doubt(size_t rule, const Series& series, const Place& place, double value, const Offence& offence);
  // A firm offence makes the doubtful one before it count.
  void Confirm(size_t rule, const Place& place);
  void Offend(size_t rule, const Series& series, const Place& place, double value, const Offence& offence);
  void Begin(Episode& episode, size_t rule, const Place& place);
  static void Show(Episode& episode, const Series& series, const Place& place, double value, const Offence& offence);

  const v1::RuleSet rules_;
  std::vector<std::unique_ptr<Rule>> made_;  // of rules_
  bool wants_tensors_ = false;               // a rule other than not_finite may take a tensor's statistic
  bool wants_overflow_ = false;              // not_finite is among them
  absl::flat_hash_map<std::string, Session> sessions_;
  absl::node_hash_map<std::string, ShardGroup> groups_;     // by ranks
  std::vector<std::string> given_up_;                       // not taken yet
  std::vector<Episode> episodes_;                           // of rules_
  std::vector<std::unique_ptr<Episode>> ended_;             // not taken yet
  std::vector<std::unique_ptr<Episode>> taken_;             // by the last TakeChanged, of those that have ended
  std::map<std::pair<size_t, uint32_t>, Doubtful> doubts_;  // by number of the rule and RankCode
  uint32_t last_number_ = 0;
  absl::flat_hash_map<ReplyKey, std::unique_ptr<Reply>> replies_;
  std::map<uint64_t, ReplyKey> by_use_;  // by Reply::used
  uint64_t used_ = 0;                    // tokens
};

}  // namespace msprobe::server
