#include "server/analysis/collectives/call_alignment.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace msprobe::server {
namespace {

constexpr uint32_t kArguments = 3;  // the same operation from the same line, with other arguments
constexpr uint32_t kGap = 4;
constexpr uint32_t kElsewhere = 5;           // the same call from another line
constexpr uint32_t kArgumentsElsewhere = 6;  // with other arguments
constexpr uint32_t kOperation = 7;           // another operation
constexpr size_t kWindow = 256;

bool MayDifferInSize(std::string_view operation) {
  constexpr std::array<std::string_view, 4> kUneven = {"all_gather", "reduce_scatter", "all_to_all",
                                                       "all_to_all_single"};
  return std::find(kUneven.begin(), kUneven.end(), operation) != kUneven.end();
}

bool Agree(const CommunicationCall& a, const CommunicationCall& b) {
  return a.operation == b.operation && a.dtype == b.dtype && a.reduce_op == b.reduce_op && a.root == b.root &&
         (a.shape == b.shape || MayDifferInSize(a.operation));
}

uint32_t CostOf(const CommunicationCall& a, const CommunicationCall& b) {
  if (a.operation != b.operation) return kOperation;
  if (a.stack != b.stack) return Agree(a, b) ? kElsewhere : kArgumentsElsewhere;
  return Agree(a, b) ? 0 : kArguments;
}

// The cheapest path through the two windows, from their begins to their ends. Where several are as cheap, the one that
// pairs calls first and leaves out later ones.
std::vector<AlignedCall> InWindow(const CallList& reference, size_t i, size_t rows, const CallList& other, size_t j,
                                  size_t columns) {
  // cost[r][c]: of the ends from r and c on.
  std::vector<uint32_t> cost((rows + 1) * (columns + 1));
  const auto at = [&](size_t r, size_t c) -> uint32_t& { return cost[r * (columns + 1) + c]; };
  for (size_t r = rows + 1; r-- > 0;) {
    for (size_t c = columns + 1; c-- > 0;) {
      if (r == rows || c == columns) {
        at(r, c) = static_cast<uint32_t>(rows - r + columns - c) * kGap;
        continue;
      }
      at(r, c) = std::min(
          {at(r + 1, c + 1) + CostOf(*reference[i + r], *other[j + c]), at(r + 1, c) + kGap, at(r, c + 1) + kGap});
    }
  }
  std::vector<AlignedCall> path;
  for (size_t r = 0, c = 0; r < rows || c < columns;) {
    AlignedCall step;
    const bool pairs =
        r < rows && c < columns && at(r, c) == at(r + 1, c + 1) + CostOf(*reference[i + r], *other[j + c]);
    if (pairs || (r < rows && at(r, c) == at(r + 1, c) + kGap)) step.reference = static_cast<int32_t>(i + r);
    if (pairs || step.reference < 0) step.other = static_cast<int32_t>(j + c);
    r += step.reference >= 0;
    c += step.other >= 0;
    path.push_back(step);
  }
  return path;
}

}  // namespace

std::vector<std::string> Differing(const CommunicationCall& ours, const CommunicationCall& theirs) {
  if (ours.operation != theirs.operation) return {"operation"};
  std::vector<std::string> differing;
  if (ours.dtype != theirs.dtype) differing.emplace_back("dtype");
  if (ours.shape != theirs.shape && !MayDifferInSize(ours.operation)) differing.emplace_back("shape");
  if (ours.reduce_op != theirs.reduce_op) differing.emplace_back("reduce_op");
  if (ours.root != theirs.root) differing.emplace_back("root");
  return differing;
}

std::vector<AlignedCall> Align(const CallList& reference, const CallList& other) {
  std::vector<AlignedCall> aligned;
  size_t i = 0;
  size_t j = 0;
  while (i < reference.size() || j < other.size()) {
    if (i < reference.size() && j < other.size() && CostOf(*reference[i], *other[j]) == 0) {
      aligned.push_back({static_cast<int32_t>(i++), static_cast<int32_t>(j++)});
      continue;
    }
    const size_t rows = std::min(kWindow, reference.size() - i);
    const size_t columns = std::min(kWindow, other.size() - j);
    std::vector<AlignedCall> path = InWindow(reference, i, rows, other, j, columns);
    // The end of a window says nothing of what comes behind it.
    const bool last = i + rows == reference.size() && j + columns == other.size();
    if (!last) path.resize((path.size() + 1) / 2);
    for (const AlignedCall& step : path) {
      i += step.reference >= 0;
      j += step.other >= 0;
    }
    aligned.insert(aligned.end(), path.begin(), path.end());
  }
  return aligned;
}

}  // namespace msprobe::server
