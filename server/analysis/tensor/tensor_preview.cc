#include "server/analysis/tensor/tensor_preview.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "server/analysis/compare/element_load.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

using Element = TensorPreview::Element;

// Gives every element in order, complex ones by their absolute value.
absl::Status ForEachElement(TensorElements& source, absl::FunctionRef<void(uint64_t index, const Cell& value)> visit) {
  const TensorDescription& description = source.description();
  const ElementLoad load = LoadOf(description.dtype);
  if (load == nullptr) {
    return absl::UnimplementedError("elements of this dtype cannot be read one by one");
  }
  const bool complex = IsComplex(description.dtype);
  const size_t size = DTypeSize(description.dtype);
  const size_t parts = complex ? 2 : 1;
  std::string rest;  // of an element that two chunks share
  uint64_t index = 0;
  double values[2 * kLoadedAtOnce];
  const auto add = [&](const char* from, size_t count) {
    while (count > 0) {
      const size_t block = std::min(count, kLoadedAtOnce);
      load(from, block * parts, description, values);
      for (size_t i = 0; i < block; ++i) {
        visit(index++, complex ? Cell::Real(std::hypot(values[2 * i], values[2 * i + 1]))
                               : CellAt(from, i, description.dtype, values[i]));
      }
      from += block * size;
      count -= block;
    }
  };
  absl::Status status = source.Read([&](std::string_view chunk) {
    if (!rest.empty()) {
      const size_t missing = std::min(size - rest.size(), chunk.size());
      rest.append(chunk.substr(0, missing));
      chunk.remove_prefix(missing);
      if (rest.size() < size) return absl::OkStatus();
      add(rest.data(), 1);
      rest.clear();
    }
    add(chunk.data(), chunk.size() / size);
    rest = chunk.substr(chunk.size() / size * size);
    return absl::OkStatus();
  });
  return status;
}

bool IsGreater(const Cell& a, const Cell& b) { return IsLess(b, a); }

// Keeps the elements that stand first in an order; of equal ones those that came first.
class Top {
 public:
  using Before = bool (*)(const Cell& a, const Cell& b);

  Top(size_t size, Before before) : size_(size), before_(before) {}

  void Add(Element element) {
    if (size_ == 0 || (kept_.size() == size_ && !before_(element.value, kept_.back().value))) return;
    const auto at = std::upper_bound(kept_.begin(), kept_.end(), element,
                                     [this](const Element& a, const Element& b) { return before_(a.value, b.value); });
    kept_.insert(at, element);
    if (kept_.size() > size_) kept_.pop_back();
  }
  std::vector<Element> Take() { return std::move(kept_); }

 private:
  const size_t size_;
  const Before before_;
  std::vector<Element> kept_;
};

// First reading: all but the histogram.
class Survey {
 public:
  Survey(size_t top, TensorPreview& preview)
      : top_(top), preview_(preview), largest_(top, IsGreater), smallest_(top, IsLess) {}

  void Add(uint64_t index, const Cell& cell) {
    const double value = cell.number();
    ++preview_.elements;
    if (!std::isfinite(value)) {
      preview_.nan_count += std::isnan(value);
      preview_.positive_inf_count += value > 0;
      preview_.negative_inf_count += value < 0;
      if (preview_.first_non_finite.size() < top_) preview_.first_non_finite.push_back({index, cell});
      // Infinities are extreme, too.
      if (!std::isnan(value)) AddExtreme(index, cell);
      return;
    }
    if (preview_.finite++ == 0) preview_.max = preview_.min = cell;
    preview_.zero_count += value == 0;
    if (IsLess(preview_.max, cell)) preview_.max = cell;
    if (IsLess(cell, preview_.min)) preview_.min = cell;
    // Welford: no cancellation.
    const double delta = value - mean_;
    mean_ += delta / static_cast<double>(preview_.finite);
    squares_ += delta * (value - mean_);
    AddExtreme(index, cell);
  }

  void Finish() {
    preview_.largest = largest_.Take();
    preview_.smallest = smallest_.Take();
    if (preview_.finite == 0) return;
    const auto count = static_cast<double>(preview_.finite);
    preview_.mean = mean_;
    preview_.std = std::sqrt(squares_ / count);
    preview_.norm = std::sqrt(squares_ + count * mean_ * mean_);
  }

 private:
  void AddExtreme(uint64_t index, const Cell& value) {
    largest_.Add({index, value});
    smallest_.Add({index, value});
  }

  const size_t top_;
  TensorPreview& preview_;
  double mean_ = 0;
  double squares_ = 0;
  Top largest_;
  Top smallest_;
};

}  // namespace

absl::StatusOr<TensorPreview> PreviewOf(const std::function<absl::StatusOr<std::unique_ptr<TensorElements>>()>& open,
                                        const PreviewOptions& options) {
  TensorPreview preview;
  Survey survey(options.top, preview);
  auto source = open();
  if (!source.ok()) return source.status();
  absl::Status status = ForEachElement(**source, [&](uint64_t index, const Cell& value) { survey.Add(index, value); });
  if (!status.ok()) return status;
  survey.Finish();
  if (preview.finite == 0 || options.bins == 0) return preview;
  const double max = preview.max.number(), min = preview.min.number();
  const size_t bins = max > min ? options.bins : 1;
  // Halves: the width of the whole range of doubles is no double.
  const double width = max / static_cast<double>(bins) - min / static_cast<double>(bins);
  for (size_t i = 0; i < bins; ++i) preview.bin_edges.push_back(min + width * static_cast<double>(i));
  preview.bin_edges.push_back(max);
  preview.bin_counts.assign(bins, 0);
  if (source = open(); !source.ok()) return source.status();
  status = ForEachElement(**source, [&](uint64_t, const Cell& cell) {
    const double value = cell.number();
    if (!std::isfinite(value)) return;
    const auto after = std::upper_bound(preview.bin_edges.begin(), preview.bin_edges.end(), value);
    const auto bin = static_cast<size_t>(after - preview.bin_edges.begin());
    ++preview.bin_counts[std::min(bin == 0 ? 0 : bin - 1, bins - 1)];
  });
  if (!status.ok()) return status;
  return preview;
}

}  // namespace msprobe::server
