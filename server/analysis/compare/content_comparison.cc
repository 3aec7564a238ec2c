#include "server/analysis/compare/content_comparison.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

std::vector<int64_t> Squeezed(const std::vector<int64_t>& shape) {
  std::vector<int64_t> squeezed;
  for (int64_t dim : shape) {
    if (dim != 1) squeezed.push_back(dim);
  }
  return squeezed;
}

bool HasNoElements(const std::vector<int64_t>& shape) {
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

// Hands on what is read and keeps the first element for tensors that have one only.
class Watched : public TensorElements {
 public:
  Watched(TensorElements* source, std::string* first) : source_(source), first_(first) {}
  const TensorDescription& description() const override { return source_->description(); }
  absl::Status Read(ContentVisitor visit) override {
    return source_->Read([&](std::string_view chunk) {
      if (first_->size() < 16) first_->append(chunk.substr(0, 16 - first_->size()));
      return visit(chunk);
    });
  }

 private:
  TensorElements* const source_;
  std::string* const first_;
};

double FirstElement(const TensorDescription& description, const std::string& bytes) {
  auto comparison = ElementwiseComparison::Start(description, description);
  if (!comparison.ok() || bytes.size() < comparison->target_size()) return 0;
  return comparison->ElementAt(bytes.data());
}

}  // namespace

ContentResult CompareContent(const Row& target_row, const TableSource& target, const Row& golden_row,
                             const TableSource& golden, const Tolerances* tolerances) {
  ContentResult result;
  if (target_row.data_name.empty() || golden_row.data_name.empty()) return result;
  const auto unreadable = [&result](std::string_view side, const absl::Status& status) {
    result.kind = ContentResult::Kind::kUnreadable;
    result.message = Cat(side, ": ", StdView(status.message()));
    return result;
  };
  auto a = target.OpenTensor(target_row);
  if (!a.ok()) return unreadable("target", a.status());
  auto b = golden.OpenTensor(golden_row);
  if (!b.ok()) return unreadable("golden", b.status());
  const TensorDescription& x = (*a)->description();
  const TensorDescription& y = (*b)->description();
  result.empty = HasNoElements(x.shape);
  result.squeezed_scalar = Squeezed(x.shape).empty();
  result.squeezed_shapes_equal = Squeezed(x.shape) == Squeezed(y.shape);
  if (!result.squeezed_shapes_equal) {
    result.kind = ContentResult::Kind::kShapes;
    return result;
  }
  std::string first_target;
  std::string first_golden;
  Watched watched_target(a->get(), &first_target);
  Watched watched_golden(b->get(), &first_golden);
  Tolerance tolerance;
  if (tolerances != nullptr) {
    tolerance =
        tolerances->Of(target.table().text(target_row.dtype), golden.table().text(golden_row.dtype), target_row.name);
  }
  auto metrics = CompareElements(watched_target, watched_golden, tolerance);
  if (absl::IsUnimplemented(metrics.status())) {
    result.kind = ContentResult::Kind::kUnsupported;
    result.message = std::string(StdView(metrics.status().message()));
    return result;
  }
  if (!metrics.ok()) {
    result.kind = ContentResult::Kind::kUnreadable;
    result.message = std::string(StdView(metrics.status().message()));
    return result;
  }
  result.kind = x.shape == y.shape ? ContentResult::Kind::kCompared : ContentResult::Kind::kShapes;
  result.metrics = *std::move(metrics);
  if (result.squeezed_scalar) {
    result.scalar_target = FirstElement(x, first_target);
    result.scalar_golden = FirstElement(y, first_golden);
  }
  return result;
}

absl::StatusOr<std::vector<ContentResult>> CompareContents(const RowMatch& match, const TableSource& target,
                                                           const TableSource& golden,
                                                           const ContentComparison& options) {
  std::vector<ContentResult> results(match.pairs.size());
  std::atomic<size_t> next = 0;
  std::atomic<size_t> done = 0;
  std::atomic<bool> stop = false;
  const auto work = [&] {
    while (!stop) {
      const size_t i = next++;
      if (i >= results.size()) return;
      if (options.cancelled && options.cancelled()) {
        stop = true;
        return;
      }
      const auto [a, b] = match.pairs[i];
      if (b != kNoRow) {
        results[i] = CompareContent(target.table().rows[static_cast<size_t>(a)], target,
                                    golden.table().rows[static_cast<size_t>(b)], golden, options.tolerances);
      }
      const size_t count = ++done;
      if (options.progress) options.progress(count);
    }
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < options.threads; ++i) helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  if (stop) return absl::CancelledError("the comparison was cancelled");
  return results;
}

}  // namespace msprobe::server
