#include <cmath>
#include <limits>

#include "server/analysis/compat/mindstudio_cells.h"
#include "server/analysis/compat/mindstudio_rows.h"

namespace msprobe::server {
namespace {

class Figures : public MindstudioRows {
 public:
  explicit Figures(const MindstudioRows& rows) : MindstudioRows(rows) {}

  void Fill(TableRow& row) const {
    const Row* const golden = GoldenRow(row);
    const auto all = [&row](std::string_view text) { row.figures.fill(Figure::Word(text)); };
    if (row.content == nullptr || golden == nullptr) return all("unsupported");
    const ContentResult& content = *row.content;
    if (content.kind == ContentResult::Kind::kNoFile || content.kind == ContentResult::Kind::kUnreadable ||
        content.kind == ContentResult::Kind::kUnsupported || content.empty) {
      return all("unsupported");
    }
    if (!content.squeezed_shapes_equal) return all("shape unmatched");
    const MindstudioSums& numbers = content.metrics.mindstudio;
    if (content.squeezed_scalar) {
      all("unsupported");
      row.figures[2] = Figure::Number(Rounded(ScalarDifference(row, *golden)));
      const double relative = ScalarRelative(content);
      row.figures[3] = Figure::Number(Rounded(relative));
      return;
    }
    if (numbers.masks_differ) return all(kNotAvailable);
    constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
    const double a = std::sqrt(numbers.target_squares);
    const double b = std::sqrt(numbers.golden_squares);
    if (a <= kEpsilon && b <= kEpsilon) {
      row.figures[0] = Figure::Number(1.0);
    } else if (a <= kEpsilon || b <= kEpsilon) {
      row.figures[0] = Figure::Word("Nan");
    } else {
      double cosine = Rounded(numbers.cosine_dot / (a * b));
      if (cosine > 0.9999) cosine = Rounded(cosine, "%.6f");
      row.figures[0] = Figure::Number(cosine);
    }
    const auto elements = static_cast<double>(content.metrics.elements);
    row.figures[1] = Figure::Number(std::sqrt(numbers.distance_squares));
    row.figures[2] = Figure::Number(Rounded(numbers.max_abs));
    row.figures[3] = Figure::Number(Rounded(numbers.max_rel));
    row.figures[4] = Figure::Number(Rounded(static_cast<double>(numbers.under_thousandth) / elements));
    row.figures[5] = Figure::Number(Rounded(static_cast<double>(numbers.under_five_thousandths) / elements));
  }

 private:
  // Of tensors of one element, in the arithmetic of their dtype.
  double ScalarDifference(const TableRow& row, const Row& golden) const {
    const ContentResult& content = *row.content;
    const auto is_single = [](std::string_view dtype) { return dtype == "torch.float32" || dtype == "torch.bfloat16"; };
    if (is_single(DType(target_, TargetRow(row))) && is_single(DType(golden_, golden))) {
      return std::fabs(static_cast<float>(content.scalar_target) - static_cast<float>(content.scalar_golden));
    }
    return std::fabs(content.scalar_target - content.scalar_golden);
  }

  static double ScalarRelative(const ContentResult& content) {
    if (std::isfinite(content.scalar_target) && std::isfinite(content.scalar_golden)) {
      return content.metrics.mindstudio.max_rel;
    }
    return std::fabs((content.scalar_target - content.scalar_golden) / content.scalar_golden);
  }
};

}  // namespace

void FillFigures(const MindstudioRows& rows, TableRow& row) { Figures(rows).Fill(row); }

}  // namespace msprobe::server
