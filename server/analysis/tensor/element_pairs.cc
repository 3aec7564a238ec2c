#include "server/analysis/tensor/element_pairs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "server/analysis/compare/element_load.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

double Distance(const ElementPair& pair) {
  if (IsSame(pair.target, pair.golden)) return 0;
  if (pair.target.is_whole() && pair.golden.is_whole()) {
    return std::fabs(static_cast<double>(pair.target.whole() - pair.golden.whole()));
  }
  const double target = pair.target.number(), golden = pair.golden.number();
  if (std::isnan(target) && std::isnan(golden)) return 0;
  const double distance = std::fabs(target - golden);
  return std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

}  // namespace

ElementPicker::ElementPicker(const TensorDescription& target, const TensorDescription& golden, Tolerance tolerance,
                             size_t count)
    : target_(target), golden_(golden), tolerance_(tolerance), count_(count) {}

void ElementPicker::Add(const char* target, const char* golden, size_t count) {
  const ElementLoad load_target = LoadOf(target_.dtype), load_golden = LoadOf(golden_.dtype);
  const size_t parts = IsComplex(target_.dtype) ? 2 : 1;
  double a[kLoadedAtOnce], b[kLoadedAtOnce];
  for (size_t left = count * parts; left > 0;) {
    const size_t block = std::min(left, kLoadedAtOnce);
    load_target(target, block, target_, a);
    load_golden(golden, block, golden_, b);
    for (size_t i = 0; i < block; ++i) {
      Look({parts_++ / parts, CellAt(target, i, target_.dtype, a[i]), CellAt(golden, i, golden_.dtype, b[i])});
    }
    target += block * LoadedSize(target_.dtype);
    golden += block * LoadedSize(golden_.dtype);
    left -= block;
  }
}

void ElementPicker::Look(const ElementPair& pair) {
  if (picked_.first.size() < count_) picked_.first.push_back(pair);
  const double distance = Distance(pair);
  if (distance == 0) return;
  const bool over = !(distance <= tolerance_.absolute + tolerance_.relative * std::fabs(pair.golden.number())) ||
                    std::isinf(distance);
  if (over && picked_.over.size() < count_) picked_.over.push_back(pair);
  std::vector<ElementPair>& worst = picked_.worst;
  if (count_ == 0 || (worst.size() == count_ && distance <= Distance(worst.back()))) return;
  const auto farther = [](const ElementPair& x, const ElementPair& y) { return Distance(x) > Distance(y); };
  worst.insert(std::upper_bound(worst.begin(), worst.end(), pair, farther), pair);
  if (worst.size() > count_) worst.pop_back();
}

}  // namespace msprobe::server
