#include "server/analysis/tensor/tensor_filter.h"

#include <fnmatch.h>
#include <re2/re2.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/analysis/compare/comparison.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

bool Holds(double value, Relation relation, double limit) {
  switch (relation) {
    case Relation::kLess:
      return value < limit;
    case Relation::kLessOrEqual:
      return value <= limit;
    case Relation::kEqual:
      return value == limit || (std::isnan(value) && std::isnan(limit));
    case Relation::kNotEqual:
      return !Holds(value, Relation::kEqual, limit);
    case Relation::kGreaterOrEqual:
      return value >= limit;
    case Relation::kGreater:
      return value > limit;
  }
  return false;
}

// Of a value that may be any number within the bounds: whether it surely holds.
bool SurelyHolds(const StatisticBounds& bounds, Relation relation, double limit) {
  if (relation == Relation::kNotEqual && !std::isnan(bounds.min)) {
    return !(bounds.min <= limit && limit <= bounds.max);
  }
  return Holds(bounds.min, relation, limit) && Holds(bounds.max, relation, limit);
}

std::string PlainDType(std::string_view dtype) {
  return absl::AsciiStrToLower(AbslView(dtype.substr(dtype.rfind('.') + 1)));
}

std::vector<std::string> DimensionsOf(std::string_view shape) {
  absl::string_view inside = absl::StripAsciiWhitespace(AbslView(shape));
  absl::ConsumePrefix(&inside, "[");
  absl::ConsumeSuffix(&inside, "]");
  std::vector<std::string> dimensions;
  if (absl::StripAsciiWhitespace(inside).empty()) return dimensions;
  for (absl::string_view part : absl::StrSplit(inside, ',')) {
    dimensions.emplace_back(absl::StripAsciiWhitespace(part));
  }
  return dimensions;
}

// A bracket without its other one, or nothing between two commas: "[4,", "4]", "[4,,2]".
absl::Status CheckShape(std::string_view given) {
  const std::string_view shape = StdView(absl::StripAsciiWhitespace(AbslView(given)));
  const auto refused = [&](std::string_view why) {
    return absl::InvalidArgumentError(Cat("shape \"", given, "\" ", why, "; write [2, *, 16] or [..., 128]"));
  };
  if (shape.starts_with('[') != shape.ends_with(']') || shape == "[") return refused("has one bracket of two");
  for (const std::string& part : DimensionsOf(shape)) {
    if (part.empty()) return refused("has a dimension without a size");
    const bool digits = part.find_first_not_of("0123456789") == std::string::npos;
    if (part != "*" && part != "..." && !digits)
      return refused(Cat("has ", part, ", which is neither a size nor * nor ..."));
  }
  return absl::OkStatus();
}

}  // namespace

TensorFilter::TensorFilter(TensorQuestion question) : question_(std::move(question)) {}
TensorFilter::TensorFilter(TensorFilter&&) noexcept = default;
TensorFilter::~TensorFilter() = default;

absl::StatusOr<TensorFilter> TensorFilter::Make(TensorQuestion question) {
  for (std::string& dtype : question.dtypes) {
    if (DTypeOfName(dtype) == v1::DTYPE_OTHER) {
      return absl::InvalidArgumentError(
          Cat("dtype \"", dtype, "\": there is no such dtype; write float32, bfloat16, int64, ..."));
    }
    dtype = PlainDType(dtype);
  }
  for (const StatisticPredicate& predicate : question.predicates) {
    const int statistic = static_cast<int>(predicate.statistic);
    const int relation = static_cast<int>(predicate.relation);
    if (statistic < 1 || statistic > kStatistics || relation < 1 || relation > 6) {
      return absl::InvalidArgumentError(
          Cat("predicates: statistic ", statistic, " with comparison ", relation, " is not known"));
    }
  }
  TensorFilter filter(std::move(question));
  if (!filter.question_.name_regex.empty()) {
    filter.regex_ = std::make_unique<re2::RE2>(filter.question_.name_regex, re2::RE2::Quiet);
    if (!filter.regex_->ok()) {
      return absl::InvalidArgumentError(
          Cat("name_regex \"", filter.question_.name_regex, "\" cannot be read: ", filter.regex_->error()));
    }
  }
  filter.with_shape_ = !filter.question_.shape.empty();
  if (filter.with_shape_) {
    if (absl::Status status = CheckShape(filter.question_.shape); !status.ok()) return status;
  }
  for (std::string& part : DimensionsOf(filter.question_.shape)) {
    filter.shape_.push_back({part == "*", part == "...", std::move(part)});
  }
  const auto rests =
      std::count_if(filter.shape_.begin(), filter.shape_.end(), [](const Dimension& each) { return each.rest; });
  if (rests > 1) {
    return absl::InvalidArgumentError(Cat("shape \"", filter.question_.shape, "\" has ... more than once"));
  }
  return filter;
}

bool TensorFilter::Takes(const StepTable& table, const Entry& entry) const {
  if (!question_.module.empty() && !IsWithin(ModuleOf(entry), question_.module)) return false;
  if (question_.stack_text.empty()) return true;
  if (entry.stack < 0) return false;
  const std::vector<std::string>& lines = table.stacks[static_cast<size_t>(entry.stack)];
  return std::any_of(lines.begin(), lines.end(),
                     [&](const std::string& line) { return line.find(question_.stack_text) != std::string::npos; });
}

bool TensorFilter::Takes(const StepTable& table, const Entry& entry, const Row& row) const {
  if (!row.is_tensor) return false;
  const std::string& glob = question_.name_glob;
  if (!glob.empty() && fnmatch(glob.c_str(), std::string(row.name).c_str(), 0) != 0 &&
      fnmatch(glob.c_str(), std::string(entry.name).c_str(), 0) != 0) {
    return false;
  }
  if (regex_ != nullptr && !re2::RE2::PartialMatch(re2::StringPiece(row.name.data(), row.name.size()), *regex_)) {
    return false;
  }
  if (!question_.dtypes.empty()) {
    const std::string dtype = PlainDType(table.text(row.dtype));
    if (std::find(question_.dtypes.begin(), question_.dtypes.end(), dtype) == question_.dtypes.end()) return false;
  }
  if (with_shape_ && !ShapeFits(table.text(row.shape))) return false;
  return std::all_of(question_.predicates.begin(), question_.predicates.end(), [&](const StatisticPredicate& each) {
    const std::optional<StatisticBounds> bounds = BoundsOf(table, row, each.statistic);
    return bounds.has_value() && SurelyHolds(*bounds, each.relation, each.value);
  });
}

bool TensorFilter::ShapeFits(std::string_view shape) const {
  const std::vector<std::string> sizes = DimensionsOf(shape);
  const auto fits = [](const Dimension& wanted, const std::string& size) { return wanted.any || wanted.size == size; };
  const auto rest =
      std::find_if(shape_.begin(), shape_.end(), [](const Dimension& dimension) { return dimension.rest; });
  if (rest == shape_.end()) {
    return sizes.size() == shape_.size() && std::equal(shape_.begin(), shape_.end(), sizes.begin(), fits);
  }
  const auto before = rest - shape_.begin();
  const auto after = shape_.end() - rest - 1;
  return static_cast<ptrdiff_t>(sizes.size()) >= before + after &&
         std::equal(shape_.begin(), rest, sizes.begin(), fits) &&
         std::equal(rest + 1, shape_.end(), sizes.end() - after, fits);
}

}  // namespace msprobe::server
