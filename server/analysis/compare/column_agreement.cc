#include "server/analysis/compare/column_agreement.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "server/format/dtype_name.h"
#include "server/format/storage/fragment_decoder.h"

namespace msprobe::server {
namespace {

// Flags that say which columns a leaf has.
constexpr uint32_t kColumns = v1::LEAF_STATISTICS | v1::LEAF_WIDE | v1::LEAF_INTEGER | v1::LEAF_CRC32 | v1::LEAF_XOR;

bool SameBits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }
bool SameBits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }
bool SameBits(uint64_t a, uint64_t b) { return a == b; }

template <typename Number>
void CompareBits(const std::vector<Number>& a, const std::vector<Number>& b,
                 std::vector<ColumnAgreement::Pass>& passes) {
  for (ColumnAgreement::Pass& pass : passes) {
    pass.sure = pass.sure && SameBits(a[pass.target], b[pass.golden]);
  }
}

double ElementsIn(const std::vector<int64_t>& dims) {
  double elements = 1;
  for (int64_t dim : dims) elements *= static_cast<double>(dim);
  return std::max(1.0, elements);
}

}  // namespace

absl::StatusOr<const std::vector<ColumnAgreement::Leaf>*> ColumnAgreement::LeavesOf(uint64_t structure, Slots lookup) {
  if (const auto found = leaves_.find(structure); found != leaves_.end()) return &found->second;
  auto read = lookup(structure);
  if (!read.ok()) return read.status();
  std::vector<Leaf>& leaves = leaves_[structure];
  for (const v1::Node::TensorSlot* slot : TensorSlots((*read)->structure)) {
    const std::string name = DTypeName(*slot);
    const v1::DType dtype = DTypeOfName(name);
    Leaf& leaf = leaves.emplace_back();
    leaf.tolerance = tolerances_.Of(name, name);
    const bool hidden = IsFloat8(dtype) || IsQuantized(dtype) || dtype == v1::DTYPE_OTHER ||
                        dtype == v1::DTYPE_UNSPECIFIED || dtype == v1::DTYPE_FLOAT4_E2M1FN_X2;
    leaf.summary =
        settings_.statistics_shown && !hidden && (leaf.tolerance.relative != 0 || leaf.tolerance.absolute != 0);
  }
  return &leaves;
}

absl::Status ColumnAgreement::Compare(const TileReader& target, const TileReader& golden, Slots structure,
                                      std::vector<Pass>& passes) {
  for (const Pass& pass : passes) {
    if (pass.target >= target.passes() || pass.golden >= golden.passes()) {
      return absl::DataLossError("a tile has fewer passes than its set");
    }
  }
  if (target.fragments() != golden.fragments()) return absl::DataLossError("tiles of other fragments");
  for (uint32_t i = 0; i < target.fragments(); ++i) {
    if (absl::Status status = target_.Read(target, i); !status.ok()) return status;
    if (absl::Status status = golden_.Read(golden, i); !status.ok()) return status;
    auto leaves = LeavesOf(target_.structure(), structure);
    if (!leaves.ok()) return leaves.status();
    if (target_.structure() != golden_.structure() || target_.leaves() != golden_.leaves() ||
        target_.leaves() != (*leaves)->size() || target_.integers().size() != golden_.integers().size() ||
        target_.floats().size() != golden_.floats().size()) {
      return absl::DataLossError("a fragment does not keep to its structure");
    }
    for (size_t leaf = 0; leaf < target_.leaves(); ++leaf) {
      CompareLeaf((**leaves)[leaf], target, target_.leaf(leaf), golden, golden_.leaf(leaf), passes);
    }
    for (size_t each = 0; each < target_.integers().size(); ++each) {
      CompareBits(target_.integers()[each], golden_.integers()[each], passes);
    }
    for (size_t each = 0; each < target_.floats().size(); ++each) {
      CompareBits(target_.floats()[each], golden_.floats()[each], passes);
    }
  }
  return absl::OkStatus();
}

void ColumnAgreement::CompareLeaf(const Leaf& leaf, const TileReader& target, const TiledFragment::Leaf& a,
                                  const TileReader& golden, const TiledFragment::Leaf& b, std::vector<Pass>& passes) {
  for (Pass& pass : passes) {
    pass.sure = pass.sure && ((a.flags[pass.target] ^ b.flags[pass.golden]) & kColumns) == 0;
  }
  // Shapes repeat from pass to pass.
  roots_.resize(target.passes());
  uint32_t shape_a = 0;
  uint32_t shape_b = 0;
  double root = 0;
  bool same = false;
  for (Pass& pass : passes) {
    if (root == 0 || shape_a != a.shape[pass.target] || shape_b != b.shape[pass.golden]) {
      shape_a = a.shape[pass.target];
      shape_b = b.shape[pass.golden];
      same = target.shapes()[shape_a] == golden.shapes()[shape_b];
      root = std::sqrt(ElementsIn(target.shapes()[shape_a]));
    }
    roots_[pass.target] = root;
    pass.sure = pass.sure && same;
  }
  if (!settings_.statistics_only) {
    const bool may_differ = leaf.summary && !settings_.checksums_only;
    if (a.has_xor64 && b.has_xor64) CompareBits(a.xor64, b.xor64, passes);
    if (a.has_crc32 && b.has_crc32) {
      for (Pass& pass : passes) {
        const bool summary = may_differ && (a.flags[pass.target] & v1::LEAF_STATISTICS) != 0;
        pass.sure = pass.sure && (summary || a.crc32[pass.target] == b.crc32[pass.golden]);
      }
    }
  }
  if (settings_.checksums_only) return;
  if (a.has_narrow && b.has_narrow) CompareStatistics(leaf, a.narrow, b.narrow, roots_, passes);
  if (a.has_wide && b.has_wide) CompareStatistics(leaf, a.wide, b.wide, roots_, passes);
  if (a.has_integers && b.has_integers) {
    for (size_t i = 0; i < 2; ++i) CompareBits(a.extremes[i], b.extremes[i], passes);
    for (size_t i = 0; i < 2; ++i) CompareBits(a.moments[i], b.moments[i], passes);
  }
}

// As RowJudge::OfStatistics; passes that do not take the column have zeros on both sides.
template <typename Number>
void ColumnAgreement::CompareStatistics(const Leaf& leaf, const std::array<std::vector<Number>, 5>& a,
                                        const std::array<std::vector<Number>, 5>& b, const std::vector<double>& roots,
                                        std::vector<Pass>& passes) const {
  const auto magnitude = [](double value) { return std::isfinite(value) ? std::fabs(value) : 0; };
  const double relative = leaf.tolerance.relative;
  const double absolute = leaf.tolerance.absolute;
  // What is not finite must be the same: comparisons with NaN are false.
  const auto near = [&](Number x, Number y, double scale, double allowance) {
    if (SameBits(x, y)) return true;
    const double distance = std::fabs(double{x} - double{y});
    return distance <= allowance + relative * scale && std::isfinite(distance);
  };
  for (Pass& pass : passes) {
    if (!pass.sure) continue;
    const uint32_t i = pass.target;
    const uint32_t j = pass.golden;
    const double root = roots[i];
    const double norm = std::max(magnitude(a[3][i]), magnitude(b[3][j]));
    const double mean = std::max(std::fabs(double{b[2][j]}), norm / root);
    pass.sure = near(a[0][i], b[0][j], std::fabs(double{b[0][j]}), absolute) &&
                near(a[1][i], b[1][j], std::fabs(double{b[1][j]}), absolute) &&
                near(a[2][i], b[2][j], mean, absolute) &&
                near(a[3][i], b[3][j], std::fabs(double{b[3][j]}), absolute * root);
  }
}

}  // namespace msprobe::server
