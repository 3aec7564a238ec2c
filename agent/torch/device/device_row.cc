#include "agent/torch/device/device_row.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace msprobe::capture {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Count, mean and sum of squared deviations of what has been added (Chan, Golub, LeVeque).
struct Moments {
  double count = 0;
  double mean = 0;
  double deviations = 0;

  void Add(double more, double its_mean, double its_deviations) {
    const double all = count + more;
    const double apart = its_mean - mean;
    deviations += its_deviations + apart * apart * count * more / all;
    mean += apart * more / all;
    count = all;
  }
};

uint64_t Count(float value) { return static_cast<uint64_t>(std::llround(value)); }

void SetNotFinite(stats::Statistics& out) {
  const bool up = out.positive_inf_count != 0, down = out.negative_inf_count != 0;
  out.variance = kNaN;
  if (out.nan_count != 0) {
    out.max = out.min = out.mean = out.norm = kNaN;
    return;
  }
  out.max = up ? kInfinity : out.has_finite ? out.finite_max : -kInfinity;
  out.min = down ? -kInfinity : out.has_finite ? out.finite_min : kInfinity;
  out.mean = up && down ? kNaN : up ? kInfinity : -kInfinity;
  out.norm = kInfinity;
}

}  // namespace

DeviceRowKind RowKindOf(stats::DType dtype) {
  switch (dtype) {
    case stats::DType::kInt32:
    case stats::DType::kInt64:
      return DeviceRowKind::kWideInteger;
    case stats::DType::kBool:
    case stats::DType::kUInt8:
    case stats::DType::kInt8:
    case stats::DType::kInt16:
      return DeviceRowKind::kNarrowInteger;
    default:
      return DeviceRowKind::kFloating;
  }
}

stats::Statistics CombinePieces(std::span<const DevicePiece> pieces, DeviceRowKind kind, bool is_bool,
                                int64_t repeats) {
  stats::Statistics out;
  if (pieces.empty()) return out;
  out.computed = true;
  out.is_integer = kind != DeviceRowKind::kFloating;

  double unit = 0;  // all sums are in it
  for (const DevicePiece& piece : pieces) unit = std::max<double>(unit, piece.row.scale);
  Moments moments;  // with 0 for each NaN and infinity
  uint64_t not_finite = 0;
  bool first = true;
  for (const auto& [row, elements] : pieces) {
    const double n = static_cast<double>(elements);
    const double scale = row.scale / unit;
    moments.Add(n, scale * (static_cast<double>(row.sum) + row.sum_rest) / n, scale * scale * row.variance * n);
    out.nan_count += Count(row.nan_count);
    out.positive_inf_count += Count(row.positive_inf_count);
    out.negative_inf_count += Count(row.negative_inf_count);
    out.zero_count += Count(row.zero_count);
    const uint64_t strange = Count(row.nan_count) + Count(row.positive_inf_count) + Count(row.negative_inf_count);
    not_finite += strange;
    if (strange == static_cast<uint64_t>(elements)) continue;
    const bool narrow = kind == DeviceRowKind::kNarrowInteger;
    const int64_t integer_max = narrow ? static_cast<int64_t>(row.max) : row.integer_max;
    const int64_t integer_min = narrow ? static_cast<int64_t>(row.min) : row.integer_min;
    const bool wide = kind == DeviceRowKind::kWideInteger;
    const double max = wide ? static_cast<double>(integer_max) : row.max;
    const double min = wide ? static_cast<double>(integer_min) : row.min;
    out.finite_max = first ? max : std::max(out.finite_max, max);
    out.finite_min = first ? min : std::min(out.finite_min, min);
    if (out.is_integer) {
      out.integer_max = first ? integer_max : std::max(out.integer_max, integer_max);
      out.integer_min = first ? integer_min : std::min(out.integer_min, integer_min);
    }
    first = false;
  }
  const double finite = moments.count - static_cast<double>(not_finite);
  out.has_finite = finite > 0;
  if (out.has_finite) {
    const double squares = moments.deviations + moments.count * moments.mean * moments.mean;
    out.finite_mean = std::clamp(unit * (moments.mean * moments.count / finite), out.finite_min, out.finite_max);
    out.finite_norm = unit * std::sqrt(squares * static_cast<double>(repeats));
  }
  if (not_finite == 0) {
    out.max = out.finite_max;
    out.min = out.finite_min;
    out.mean = out.finite_mean;
    out.norm = out.finite_norm;
    if (is_bool) {
      // Exact, from the counts.
      const double trues = moments.count - static_cast<double>(out.zero_count);
      out.mean = out.finite_mean = trues / moments.count;
      out.norm = out.finite_norm = std::sqrt(trues * static_cast<double>(repeats));
      out.variance = out.mean * (1 - out.mean);
    } else if (out.max != out.min) {
      out.variance = moments.deviations / moments.count * unit * unit;
    }
  }
  const auto times = static_cast<uint64_t>(repeats);
  for (uint64_t* count : {&out.nan_count, &out.positive_inf_count, &out.negative_inf_count, &out.zero_count}) {
    *count *= times;
  }
  if (not_finite != 0) SetNotFinite(out);
  return out;
}

}  // namespace msprobe::capture
