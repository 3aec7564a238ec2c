#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/analysis/table/statistic.h"
#include "server/analysis/table/step_table.h"

namespace re2 {
class RE2;
}

namespace msprobe::server {

enum class Relation : uint8_t { kLess = 1, kLessOrEqual, kEqual, kNotEqual, kGreaterOrEqual, kGreater };

// A statistic that was not captured fulfils a predicate only where its bounds (BoundsOf) leave no doubt.
struct StatisticPredicate {
  Statistic statistic = Statistic::kMax;
  Relation relation = Relation::kGreater;
  double value = 0;  // NaN equals NaN
};

// A search for tensors. Every condition that is given must hold; an empty question takes everything.
struct TensorQuestion {
  std::string name_glob;            // over full names of records, or of rows
  std::string name_regex;           // RE2, searched in full names of rows
  std::vector<std::string> dtypes;  // without prefix; any of these
  std::string shape;                // "[2, *, 16]": * is one dimension of any size, ... any number of them
  std::vector<StatisticPredicate> predicates;
  std::string module;      // this one or one below it
  std::string stack_text;  // in a line of the stack
};

// Constant after Make; any thread.
class TensorFilter {
 public:
  // InvalidArgument: a pattern or shape that cannot be read, a dtype or statistic that does not exist.
  static absl::StatusOr<TensorFilter> Make(TensorQuestion question);

  TensorFilter(TensorFilter&&) noexcept;
  ~TensorFilter();

  // Whether rows of the record may fit; needs Entry.parent and stacks where module or stack_text are given.
  bool Takes(const StepTable& table, const Entry& entry) const;
  // Whether a row fits. The entry is one that Takes took.
  bool Takes(const StepTable& table, const Entry& entry, const Row& row) const;

 private:
  struct Dimension {
    bool any = false;   // *
    bool rest = false;  // ...
    std::string size;
  };

  explicit TensorFilter(TensorQuestion question);
  bool ShapeFits(std::string_view shape) const;

  TensorQuestion question_;
  std::unique_ptr<re2::RE2> regex_;
  std::vector<Dimension> shape_;
  bool with_shape_ = false;
};

}  // namespace msprobe::server
