#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace msprobe::core {

// What can be wrong with a reply of a language model. The numbers are those of analyze_output_anomaly.
enum class ResponseFault : uint8_t { kNone = 0, kRare = 1, kGarbled = 2, kRepeat = 3, kNotFinite = 4 };
std::string_view NameOf(ResponseFault fault);  // "rare", "garbled", "repeat", "not_finite"; "none"

// The thresholds, with the defaults of mindstudio-probe 26.2.0, whose configuration file has the names in brackets.
struct ResponseRules {
  uint32_t window = 128;                  // tokens (window_size)
  uint32_t stride = 64;                   // tokens from one window to the next; at most `window`
  double rare_mass = 0.4;                 // rare_character.explogp_sum_thresh
  uint32_t rare_categories = 2;           // rare_character.category_thresh
  double rare_top1 = -6;                  // rare_character.top1_logp_thresh
  double garbled_top1 = -5;               // garbled.top1_logp_thresh
  double garbled_share = 0.2;             // garbled.window_ratio
  uint32_t garbled_windows = 0;           // garbled.window_thresh
  uint32_t repeat_gram = 3;               // repetition.trajectory.n
  double repeat_distinct = 0.2;           // repetition.trajectory.distinct_n_thresh
  double repeat_distinct_top1 = -0.2;     // repetition.trajectory.logp_thresh
  double repeat_correlation = 0.65;       // repetition.acf.acf_threshold
  double repeat_correlation_top1 = -0.2;  // repetition.acf.logp_thresh
  uint32_t repeat_single_windows = 14;    // repetition.single_window_thresh
  uint32_t repeat_both_windows = 2;       // repetition.multi_window_thresh
};

// Empty, or what is wrong with the rules: "stride is 200; it should be from 1 to window, 128".
std::string WrongIn(const ResponseRules& rules);

// The structure's name of records (RECORD_SCALARS) that say a token of a reply, or that it has ended (record.proto).
inline constexpr std::string_view kResponse = "response";

// One token of a reply, and what the rules need of its k best candidates.
struct SampledToken {
  int64_t id = 0;
  bool has_logprobs = false;  // the next ones count
  double top1 = 0;            // log-probability of the best candidate
  double mass = 0;            // sum of the candidates' probabilities; not finite: one of the log-probabilities is not
  // Of how many kinds of text the candidates are (token2category); absent: no vocabulary is known.
  std::optional<uint32_t> categories = std::nullopt;
};

// Judges a reply token by token, by the rules of mindstudio-probe 26.2.0 (msprobe/response_anomaly/detector.py):
//
// 1. not_finite: a candidate's log-probability is NaN or infinite. At once.
// 2. rare: without a vocabulary top1 < rare_top1; with one mass < rare_mass and more than rare_categories. At once.
// 3. garbled: in more than garbled_windows windows more than garbled_share of the tokens has mass < rare_mass, and as
//    many top1 < garbled_top1; with a vocabulary, as many are rare.
// 4. repeat: a window repeats by its tokens if its distinct n-grams are fewer than repeat_distinct of all and no top1
//    is repeat_distinct_top1 or less; by its log-probabilities if the autocorrelation of top1 peaks above
//    repeat_correlation at a lag from 3 to window / 3, is above half of that at twice or three times the lag, is not
//    smooth (the norm of its differences exceeds 0.9), and no top1 is repeat_correlation_top1 or less. A reply repeats
//    once more than repeat_both_windows windows do both, or more than repeat_single_windows only the one or the other.
//
// Where the tokens of a window have no log-probabilities, only its tokens are judged. A reply is judged as one of fewer
// tokens than `stride` until it has as many: by 1 and 2 alone. O(1) amortised a token; memory of one window.
//
// Threads: one at a time.
class ResponseDetector {
 public:
  struct Finding {
    ResponseFault fault = ResponseFault::kNone;
    uint64_t first = 0, last = 0;  // the tokens that decided, counted from 0
    double value = 0, limit = 0;   // what passed what
    std::string why = {};          // one sentence with the numbers
  };

  // The rules are right (WrongIn).
  explicit ResponseDetector(const ResponseRules& rules);

  // Each fault is found once.
  std::optional<Finding> Add(const SampledToken& token);
  // The reply has ended: judges the windows that the end cuts off. Nothing is added afterwards.
  std::optional<Finding> Finish();

  // What analyze_output_anomaly says of the tokens so far: not_finite before all, then what a window decided first,
  // then rare.
  ResponseFault verdict() const;
  uint64_t tokens() const { return tokens_; }

 private:
  std::optional<Finding> JudgeToken(const SampledToken& token);
  std::optional<Finding> JudgeWindow(uint64_t first, uint64_t end);
  std::optional<Finding> JudgeGarbled(uint64_t first, uint64_t end);
  std::optional<Finding> JudgeRepeat(uint64_t first, uint64_t end);
  double DistinctShare();      // of the n-grams of ids_
  double PeakOfCorrelation();  // of top1_; 0: there is none that counts
  bool IsRare(const SampledToken& token) const;
  const SampledToken& At(uint64_t token) const { return ring_[token % rules_.window]; }

  const ResponseRules rules_;
  std::vector<SampledToken> ring_;  // the last `window` tokens
  uint64_t tokens_ = 0;
  uint64_t next_window_ = 0;                                           // its first token
  uint32_t garbled_ = 0, both_ = 0, by_tokens_ = 0, by_logprobs_ = 0;  // windows
  bool is_rare_ = false, is_not_finite_ = false;
  ResponseFault decided_ = ResponseFault::kNone;  // by windows
  // Of the window that is judged.
  std::vector<int64_t> ids_;
  std::vector<double> top1_;
  std::vector<uint32_t> order_;
};

}  // namespace msprobe::core
