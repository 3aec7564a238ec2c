#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "agent/core/responses/response_detector.h"
#include "msprobe/v1/monitor.pb.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// What a rule says of a point.
struct Offence {
  double limit = 0;  // that the value, or what the rule made of it, passed
  std::string why;   // one sentence with the numbers
  // Who offends, if it is not the point that was looked at but another one of its series.
  struct Elsewhere {
    uint32_t rank = 0;  // RankCode
    uint32_t step = 0;
    double value = 0;
  };
  std::optional<Elsewhere> elsewhere = std::nullopt;
  // It counts only if a firm offence of the same rule and rank is at its step or the next one.
  bool is_doubtful = false;
};

// The series that a watch is made for.
struct WatchedSeries {
  std::string_view name;
  const std::string& session;  // watches of one session may share what the rule remembers of it
  uint32_t rank = 0;           // RankCode
};

// A rule's memory of one series of one session. Threads: one at a time.
class SeriesWatch {
 public:
  virtual ~SeriesWatch() = default;
  // The next point; steps grow. nullopt: no offence.
  virtual std::optional<Offence> Look(uint32_t step, double value) = 0;
};

// A rule's memory of one captured tensor of one session. Threads: one at a time.
class TensorWatch {
 public:
  virtual ~TensorWatch() = default;
  struct Found {
    double value = 0;
    Offence offence;
  };
  // The tensor at the next step; steps grow.
  virtual std::optional<Found> Look(const StepTable& table, const Row& tensor) = 0;
};

// A rule's memory of one reply of a language model. Threads: one at a time.
class ReplyWatch {
 public:
  virtual ~ReplyWatch() = default;
  struct Found {
    core::ResponseFault fault;
    double value = 0;  // of the tokens that decided
    Offence offence;
  };
  // The next token; null: the reply has ended.
  virtual std::optional<Found> Look(const core::SampledToken* token) = 0;
};

// A rule that is ready to watch: one kind, with its parameters. Each kind is a file of this directory.
// docs/monitoring.md has the formulas.
//
// Threads: one at a time.
class Rule {
 public:
  virtual ~Rule() = default;
  // Null: the kind does not take the series. The rule outlives its watches.
  virtual std::unique_ptr<SeriesWatch> Watch(const WatchedSeries& series) = 0;
  // Null: the kind does not take tensors as a whole, or not this one.
  virtual std::unique_ptr<TensorWatch> WatchTensor(std::string_view /*name*/) { return nullptr; }
  // Null: the kind does not take replies.
  virtual std::unique_ptr<ReplyWatch> WatchReply() { return nullptr; }
};

// A kind whose series do not know of each other: `Watcher` is made from the message of its parameters.
template <typename Watcher, typename Parameters>
class RuleOf final : public Rule {
 public:
  explicit RuleOf(Parameters parameters) : parameters_(std::move(parameters)) {}
  std::unique_ptr<SeriesWatch> Watch(const WatchedSeries&) override { return std::make_unique<Watcher>(parameters_); }

 private:
  const Parameters parameters_;
};

// A kind that takes captured tensors as a whole, each for itself.
template <typename Watcher, typename Parameters>
class TensorRuleOf final : public Rule {
 public:
  explicit TensorRuleOf(Parameters parameters) : parameters_(std::move(parameters)) {}
  std::unique_ptr<SeriesWatch> Watch(const WatchedSeries&) override { return nullptr; }
  std::unique_ptr<TensorWatch> WatchTensor(std::string_view) override { return std::make_unique<Watcher>(parameters_); }

 private:
  const Parameters parameters_;
};

// Counts offences in a row.
class Patience {
 public:
  explicit Patience(uint32_t needed) : needed_(needed) {}
  // True: as many in a row as are needed, or more.
  bool Count(bool offends) {
    in_a_row_ = offends ? in_a_row_ + 1 : 0;
    return in_a_row_ >= needed_;
  }
  uint32_t needed() const { return needed_; }

 private:
  const uint32_t needed_;
  uint32_t in_a_row_ = 0;
};

// Zero means the default.
template <typename Number>
Number Or(Number given, Number normal) {
  return given != 0 ? given : normal;
}

// "1.5", "nan", "1e+06": six digits.
std::string Shown(double value);

}  // namespace msprobe::server
