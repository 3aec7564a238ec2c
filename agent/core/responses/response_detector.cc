#include "agent/core/responses/response_detector.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

#include "agent/core/responses/autocorrelation.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

constexpr size_t kLeastLag = 3;
constexpr double kFlat = 1e-12;  // a standard deviation
constexpr double kSmooth = 0.9;  // the norm of the differences of an autocorrelation
constexpr uint32_t kLongestWindow = 4096;

std::string Shown(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

}  // namespace

std::string_view NameOf(ResponseFault fault) {
  switch (fault) {
    case ResponseFault::kNone:
      return "none";
    case ResponseFault::kRare:
      return "rare";
    case ResponseFault::kGarbled:
      return "garbled";
    case ResponseFault::kRepeat:
      return "repeat";
    case ResponseFault::kNotFinite:
      return "not_finite";
  }
  return "";
}

std::string WrongIn(const ResponseRules& rules) {
  if (rules.window < 1 || rules.window > kLongestWindow) {
    return Cat("window is ", rules.window, "; it should be from 1 to ", kLongestWindow);
  }
  if (rules.stride < 1 || rules.stride > rules.window) {
    return Cat("stride is ", rules.stride, "; it should be from 1 to window, ", rules.window);
  }
  if (rules.repeat_gram < 1) return "repeat_gram is 0; it should be at least 1";
  for (const auto& [name, share] : {std::pair("rare_mass", rules.rare_mass),
                                    {"garbled_share", rules.garbled_share},
                                    {"repeat_distinct", rules.repeat_distinct},
                                    {"repeat_correlation", rules.repeat_correlation}}) {
    if (!(share >= 0 && share <= 1)) return Cat(name, " is ", Shown(share), "; it should be from 0 to 1");
  }
  for (const auto& [name, logprob] : {std::pair("rare_top1", rules.rare_top1),
                                      {"garbled_top1", rules.garbled_top1},
                                      {"repeat_distinct_top1", rules.repeat_distinct_top1},
                                      {"repeat_correlation_top1", rules.repeat_correlation_top1}}) {
    if (!(logprob <= 0)) return Cat(name, " is ", Shown(logprob), "; it should be 0 or less");
  }
  return "";
}

ResponseDetector::ResponseDetector(const ResponseRules& rules) : rules_(rules) {}

ResponseFault ResponseDetector::verdict() const {
  if (is_not_finite_) return ResponseFault::kNotFinite;
  if (decided_ != ResponseFault::kNone) return decided_;
  return is_rare_ ? ResponseFault::kRare : ResponseFault::kNone;
}

std::optional<ResponseDetector::Finding> ResponseDetector::Add(const SampledToken& token) {
  if (ring_.size() < rules_.window) {
    ring_.push_back(token);
  } else {
    ring_[tokens_ % rules_.window] = token;
  }
  std::optional<Finding> found = JudgeToken(token);
  ++tokens_;
  if (tokens_ != next_window_ + rules_.window) return found;
  std::optional<Finding> of_window = JudgeWindow(next_window_, tokens_);
  next_window_ += rules_.stride;
  return of_window.has_value() ? of_window : found;
}

std::optional<ResponseDetector::Finding> ResponseDetector::Finish() {
  if (tokens_ < rules_.stride) return std::nullopt;
  std::optional<Finding> found;
  for (; next_window_ < tokens_ && !found.has_value(); next_window_ += rules_.stride) {
    found = JudgeWindow(next_window_, tokens_);
  }
  return found;
}

bool ResponseDetector::IsRare(const SampledToken& token) const {
  if (!token.has_logprobs) return false;
  if (!token.categories.has_value()) return token.top1 < rules_.rare_top1;
  return token.mass<rules_.rare_mass&& * token.categories> rules_.rare_categories;
}

std::optional<ResponseDetector::Finding> ResponseDetector::JudgeToken(const SampledToken& token) {
  const auto found = [&](ResponseFault fault, double value, double limit, const std::string& why) {
    return Finding{.fault = fault,
                   .first = tokens_,
                   .last = tokens_,
                   .value = value,
                   .limit = limit,
                   .why = Cat("token ", tokens_, why)};
  };
  if (token.has_logprobs && !std::isfinite(token.mass + token.top1)) {
    if (std::exchange(is_not_finite_, true)) return std::nullopt;
    return found(ResponseFault::kNotFinite, token.mass, 0, " has a log-probability that is not finite");
  }
  if (!IsRare(token) || std::exchange(is_rare_, true)) return std::nullopt;
  if (!token.categories.has_value()) {
    return found(ResponseFault::kRare, token.top1, rules_.rare_top1,
                 Cat(" is rare: its best candidate has log-probability ", Shown(token.top1), ", below ",
                     Shown(rules_.rare_top1)));
  }
  return found(ResponseFault::kRare, token.mass, rules_.rare_mass,
               Cat(" is rare: its candidates have probability ", Shown(token.mass), ", below ", Shown(rules_.rare_mass),
                   ", and are of ", *token.categories, " kinds"));
}

std::optional<ResponseDetector::Finding> ResponseDetector::JudgeWindow(uint64_t first, uint64_t end) {
  if (decided_ != ResponseFault::kNone) return std::nullopt;
  ids_.clear();
  top1_.clear();
  bool is_finite = true;
  for (uint64_t i = first; i < end; ++i) {
    const SampledToken& token = At(i);
    ids_.push_back(token.id);
    if (!token.has_logprobs) continue;
    top1_.push_back(token.top1);
    is_finite = is_finite && std::isfinite(token.mass + token.top1);
  }
  if (!is_finite) return std::nullopt;
  std::optional<Finding> found = JudgeGarbled(first, end);
  if (!found.has_value() && ids_.size() >= rules_.stride) found = JudgeRepeat(first, end);
  if (found.has_value()) decided_ = found->fault;
  return found;
}

std::optional<ResponseDetector::Finding> ResponseDetector::JudgeGarbled(uint64_t first, uint64_t end) {
  if (top1_.size() < ids_.size()) return std::nullopt;
  const auto share = [&](auto offends) {
    size_t hits = 0;
    for (uint64_t i = first; i < end; ++i) hits += offends(At(i)) ? 1 : 0;
    return static_cast<double>(hits) / static_cast<double>(end - first);
  };
  double value = 0;
  if (At(first).categories.has_value()) {
    value = share([this](const SampledToken& token) { return IsRare(token); });
  } else {
    value = std::min(share([this](const SampledToken& token) { return token.mass < rules_.rare_mass; }),
                     share([this](const SampledToken& token) { return token.top1 < rules_.garbled_top1; }));
  }
  if (value <= rules_.garbled_share || ++garbled_ <= rules_.garbled_windows) return std::nullopt;
  return Finding{.fault = ResponseFault::kGarbled,
                 .first = first,
                 .last = end - 1,
                 .value = value,
                 .limit = rules_.garbled_share,
                 .why = Cat("it is garbled: ", Shown(value), " of tokens ", first, " to ", end - 1,
                            " are improbable, more than ", Shown(rules_.garbled_share))};
}

double ResponseDetector::DistinctShare() {
  const size_t gram = rules_.repeat_gram;
  if (ids_.size() < gram) return 1;
  order_.resize(ids_.size() - gram + 1);
  std::iota(order_.begin(), order_.end(), 0);
  const auto begin = [this](uint32_t i) { return ids_.begin() + i; };
  const auto size = static_cast<int64_t>(gram);
  std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
    return std::lexicographical_compare(begin(a), begin(a) + size, begin(b), begin(b) + size);
  });
  size_t distinct = 1;
  for (size_t i = 1; i < order_.size(); ++i) {
    distinct += std::equal(begin(order_[i]), begin(order_[i]) + size, begin(order_[i - 1])) ? 0 : 1;
  }
  return static_cast<double>(distinct) / static_cast<double>(order_.size());
}

double ResponseDetector::PeakOfCorrelation() {
  const auto n = static_cast<double>(top1_.size());
  const size_t window = rules_.window, greatest = window / 3;
  if (greatest < kLeastLag) return 0;
  const double mean = std::accumulate(top1_.begin(), top1_.end(), 0.0) / n;
  double squares = 0;
  for (double value : top1_) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / n);
  if (deviation < kFlat) return 0;
  for (double& value : top1_) value = (value - mean) / deviation;
  const std::vector<double> correlation = Autocorrelation(top1_, window);
  const auto segment = correlation.begin() + kLeastLag;
  const auto peak = std::max_element(segment, correlation.begin() + static_cast<int64_t>(greatest) + 1);
  const auto lag = static_cast<size_t>(peak - correlation.begin());
  if (*peak <= rules_.repeat_correlation) return 0;
  const auto confirmed = [&](size_t at) { return at < window && correlation[at] > rules_.repeat_correlation / 2; };
  if (!confirmed(2 * lag) && !confirmed(3 * lag)) return 0;
  // The lags behind the window's mirror those in it, so every difference but the first comes twice.
  double differences = 0;
  for (size_t i = 0; i + 1 < window; ++i) {
    const double difference = correlation[i + 1] - correlation[i];
    differences += (i == 0 ? 1 : 2) * difference * difference;
  }
  return std::sqrt(differences) > kSmooth ? *peak : 0;
}

std::optional<ResponseDetector::Finding> ResponseDetector::JudgeRepeat(uint64_t first, uint64_t end) {
  const bool has_logprobs = top1_.size() == ids_.size();
  const double least = has_logprobs ? *std::min_element(top1_.begin(), top1_.end()) : 0;
  const double distinct = DistinctShare();
  const bool by_tokens = distinct < rules_.repeat_distinct && (!has_logprobs || least > rules_.repeat_distinct_top1);
  const double peak = has_logprobs && least > rules_.repeat_correlation_top1 ? PeakOfCorrelation() : 0;
  if (peak > 0 && by_tokens) {
    ++both_;
  } else if (peak > 0) {
    ++by_logprobs_;
  } else if (by_tokens) {
    ++by_tokens_;
  }
  const bool both = both_ > rules_.repeat_both_windows;
  if (!both && by_logprobs_ <= rules_.repeat_single_windows && by_tokens_ <= rules_.repeat_single_windows) {
    return std::nullopt;
  }
  Finding found{.fault = ResponseFault::kRepeat, .first = first, .last = end - 1};
  if (both || by_tokens_ > rules_.repeat_single_windows) {
    found.value = distinct;
    found.limit = rules_.repeat_distinct;
    found.why = Cat("it repeats itself: of the ", rules_.repeat_gram, "-grams of tokens ", first, " to ", end - 1, " ",
                    Shown(distinct), " are distinct, and ", both ? both_ : by_tokens_, " windows are like that");
  } else {
    found.value = peak;
    found.limit = rules_.repeat_correlation;
    found.why = Cat("it repeats itself: the log-probabilities of tokens ", first, " to ", end - 1,
                    " have autocorrelation ", Shown(peak), ", and ", by_logprobs_, " windows are like that");
  }
  return found;
}

}  // namespace msprobe::core
