#include "server/analysis/divergence/overflow.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "server/analysis/compare/comparison.h"
#include "server/analysis/divergence/finiteness.h"
#include "server/analysis/divergence/first_divergence.h"
#include "server/analysis/module_tree/module_name.h"
#include "server/format/cat.h"
#include "server/format/storage/record_pass.h"

namespace msprobe::server {
namespace {

// Of a backward call, or what it left in a parameter.
bool IsGradient(std::string_view entry) {
  entry = WithoutPass(entry);
  for (int part = 0; part < 2; ++part) {
    const size_t dot = entry.rfind('.');
    const std::string_view last = entry.substr(dot == std::string_view::npos ? 0 : dot + 1);
    if (last == "backward" || last == "parameters_grad") return true;
    if (dot == std::string_view::npos || last.find_first_not_of("0123456789") != std::string_view::npos) return false;
    entry = entry.substr(0, dot);
  }
  return false;
}

// The forward call of a backward one.
std::string ForwardOf(std::string_view entry) {
  std::string name(WithoutPass(entry));
  const std::string_view backward = "backward";
  const size_t at = name.rfind(backward);
  if (at != std::string::npos) name.replace(at, backward.size(), "forward");
  return name;
}

uint64_t CountedElements(std::string_view shape) {
  uint64_t elements = 1;
  for (size_t at = 0; at < shape.size();) {
    uint64_t dim = 0;
    const auto [end, error] = std::from_chars(shape.data() + at, shape.data() + shape.size(), dim);
    if (error == std::errc()) elements *= dim;
    at = error == std::errc() ? static_cast<size_t>(end - shape.data()) : at + 1;
  }
  return elements;
}

// Tensors of one step that are not finite, and which are accounted for.
class NonFinite {
 public:
  explicit NonFinite(const StepTable& table) : table_(table) {
    for (const Row& row : table.rows) {
      if (row.state == RowState::kParameters && !FinitenessOf(table, row).finite()) parameters_.insert(KeyOf(row));
    }
  }

  // Operations have given it or been given it.
  void See(const Row& row) {
    seen_.insert(KeyOf(row));
    uint64_t& largest = largest_[row.dtype];
    largest = std::max(largest, CountedElements(table_.text(row.shape)));
  }
  // Whether it was seen. Views are made without a record: an argument that is no module's parameter, and not larger
  // than one that was seen, is taken for a part of it.
  bool IsSeen(const Row& row) const {
    const std::string key = KeyOf(row);
    if (seen_.contains(key)) return true;
    if (row.state == RowState::kParameters || parameters_.contains(key)) return false;
    const auto largest = largest_.find(row.dtype);
    return largest != largest_.end() && CountedElements(table_.text(row.shape)) <= largest->second;
  }

 private:
  std::string KeyOf(const Row& row) const { return TensorKey(table_, row); }

  const StepTable& table_;
  absl::flat_hash_set<std::string> parameters_;
  absl::flat_hash_set<std::string> seen_;
  absl::flat_hash_map<uint32_t, uint64_t> largest_;  // by dtype: elements
};

// Whether values are minus infinity, and neither infinity nor NaN.
bool HasMinusInfinityAlone(const StepTable& table, const Row& row) {
  const Finiteness found = FinitenessOf(table, row);
  if (found.nan || !found.infinity) return false;
  if (row.extended >= 0 && table.extended[static_cast<size_t>(row.extended)].positive_inf_count != 0) return false;
  return std::none_of(row.statistics.begin(), row.statistics.begin() + 2, [](const Cell& extreme) {
    return extreme.kind == Cell::Kind::kReal && extreme.real == std::numeric_limits<double>::infinity();
  });
}

// Whether what the row's tensor had before does not matter. Of __setitem__ the elements that stay may be memory to
// which nothing was written yet.
bool IsOverwritten(const Entry& entry, const Row& row) {
  return OverwritesItsArgument(entry.name) && row.state == RowState::kInput && row.name.ends_with(".input.0");
}

// The first result of a communication that another rank, or the communication, made NaN or infinite.
const Row* ReceivedIn(const StepTable& table, const Entry& entry) {
  const std::span rows = std::span(table.rows).subspan(entry.first_row, entry.rows);
  const bool given_infinity = std::ranges::any_of(
      rows, [&](const Row& row) { return row.state != RowState::kOutput && FinitenessOf(table, row).infinity; });
  const bool reduces = OperationOf(entry.name).find("reduce") != std::string_view::npos;
  const auto found = std::ranges::find_if(rows, [&](const Row& row) {
    const Finiteness finiteness = FinitenessOf(table, row);
    if (!row.is_tensor || row.state != RowState::kOutput || finiteness.finite()) return false;
    return finiteness.nan || (!given_infinity && (reduces || !HasMinusInfinityAlone(table, row)));
  });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

std::vector<OverflowOrigin> FindOverflowOrigins(const StepTable& table) {
  std::vector<OverflowOrigin> origins;
  NonFinite non_finite(table);
  std::vector<std::string_view> modules;  // of origins
  uint64_t collectives = 0;
  bool went_forward = false;   // an origin was no gradient: all gradients of the step follow from its loss
  bool went_backward = false;  // a backward call passed NaN or infinity on
  absl::flat_hash_set<std::string> nan_calls;  // forward calls that saw NaN: their backward calls keep it
  for (size_t i = 0; i < table.entries.size(); ++i) {
    const Entry& entry = table.entries[i];
    const Row* weight = nullptr;
    const Row* input = nullptr;
    const Row* output = nullptr;
    const Row* nan_output = nullptr;
    bool given = false;      // something that is not finite went in
    bool given_nan = false;  // and something NaN
    bool nan = false;        // something, in or out, is NaN
    bool inputs = false;     // there are any
    for (uint32_t row_number = entry.first_row; row_number < entry.first_row + entry.rows; ++row_number) {
      const Row& row = table.rows[row_number];
      const bool is_result = row.state == RowState::kOutput || row.state == RowState::kParametersGrad;
      inputs = inputs || (row.is_tensor && !is_result);
      const Finiteness finiteness = FinitenessOf(table, row);
      if (finiteness.finite() || IsWrittenInto(row)) continue;
      nan = nan || finiteness.nan;
      given = given || !is_result;
      given_nan = given_nan || (finiteness.nan && !is_result);
      if (!row.is_tensor) continue;
      if (is_result) {
        if (output == nullptr) output = &row;
        if (nan_output == nullptr && finiteness.nan) nan_output = &row;
      } else if (non_finite.IsSeen(row)) {
        continue;
      } else if (row.state == RowState::kParameters) {
        if (weight == nullptr) weight = &row;
      } else if (input == nullptr && !HasMinusInfinityAlone(table, row) && !IsOverwritten(entry, row)) {
        input = &row;
      }
    }
    for (uint32_t row_number = entry.first_row; row_number < entry.first_row + entry.rows; ++row_number) {
      const Row& row = table.rows[row_number];
      if (row.is_tensor && !FinitenessOf(table, row).finite() && !IsWrittenInto(row)) non_finite.See(row);
    }
    const bool foreign = GivesUninitialisedMemory(entry.name) || IsCommunication(entry.name);
    const std::string_view module = ModuleOf(entry);
    const auto add = [&](const Row& row, Origin origin) {
      const Finiteness found = FinitenessOf(table, row);
      origins.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(&row - table.rows.data()), origin, found.nan,
                         found.infinity, collectives});
      modules.push_back(module);
    };
    // The module around an origin has finite inputs, too.
    const bool around = entry.name.starts_with("Module.") &&
                        std::any_of(modules.begin(), modules.end(),
                                    [&](std::string_view inner) { return module.empty() || IsWithin(inner, module); });
    const bool gradient = IsGradient(entry.name);
    const bool follows =
        gradient && (went_forward || (went_backward && !inputs) || nan_calls.contains(ForwardOf(entry.name)));
    const size_t before = origins.size();
    if (!foreign && !follows) {
      if (weight != nullptr) {
        add(*weight, Origin::kWeight);
      } else if (input != nullptr) {
        add(*input, input->requires_grad == Row::Grad::kTrue ? Origin::kWeight : Origin::kInput);
      } else if (!around) {
        // Without an origin before it, NaN comes of infinities that the program wants: of a row that is masked whole.
        const bool of_mask = given && !given_nan && origins.empty();
        const Row* const begun = of_mask ? nan_output : given ? nullptr : output;
        if (begun != nullptr) add(*begun, Origin::kComputation);
      }
    }
    went_forward = went_forward || (!gradient && origins.size() > before);
    went_backward = went_backward || (gradient && output != nullptr);
    if (nan && !gradient && !foreign) nan_calls.emplace(WithoutPass(entry.name));
    collectives += IsCommunication(entry.name);
  }
  return origins;
}

std::optional<uint32_t> FindReceived(const StepTable& table) {
  for (const Entry& entry : table.entries) {
    if (!IsCommunication(entry.name)) continue;
    if (const Row* received = ReceivedIn(table, entry)) return static_cast<uint32_t>(received - table.rows.data());
  }
  return std::nullopt;
}

std::vector<OverflowOrigin> NewOverflowOrigins::In(uint32_t step, const StepTable& table) {
  const bool spread = first_step_.has_value() && *first_step_ < step;
  bool told_weight = false;
  std::vector<OverflowOrigin> found;
  for (const OverflowOrigin& origin : FindOverflowOrigins(table)) {
    if (origin.origin == Origin::kWeight) {
      const bool fresh = weights_.insert(std::string(table.rows[origin.row].name)).second;
      if (!fresh || (spread && told_weight)) continue;
      told_weight = true;
    }
    if (!first_step_.has_value()) first_step_ = step;
    found.push_back(origin);
  }
  return found;
}

bool FirstOverflow::Take(uint32_t step, const OverflowOrigin& origin) {
  const std::pair place(step, origin.collectives_before);
  if (first_ && *first_ <= place) return false;
  first_ = place;
  return true;
}

}  // namespace msprobe::server
