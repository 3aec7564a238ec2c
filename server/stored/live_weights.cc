#include "server/stored/live_weights.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "agent/core/weight_digest.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kWeightsHead = "weights.";
constexpr std::string_view kWeightsTail = ".debug";
constexpr size_t kMaxDimensions = 64;

const v1::Value* Find(const v1::Value& dict, std::string_view key) {
  for (const v1::Value::Entry& entry : dict.dict().entries()) {
    if (entry.key() == key) return &entry.value();
  }
  return nullptr;
}

template <typename Number>
std::optional<std::vector<Number>> Numbers(const v1::Value* list) {
  if (list == nullptr) return std::nullopt;
  std::vector<Number> numbers;
  for (const v1::Value& item : list->list().items()) {
    if (item.kind_case() != v1::Value::kInteger) return std::nullopt;
    numbers.push_back(static_cast<Number>(item.integer()));
  }
  return numbers;
}

uint64_t Product(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), uint64_t{1},
                         [](uint64_t product, int64_t size) { return product * static_cast<uint64_t>(size); });
}

bool IsSensible(const RecordedWeight& weight) {
  if (weight.shape.size() > kMaxDimensions || weight.offset.size() != weight.shape.size() ||
      weight.size.size() != weight.shape.size()) {
    return false;
  }
  for (size_t i = 0; i < weight.shape.size(); ++i) {
    if (weight.shape[i] < 0 || weight.offset[i] < 0 || weight.size[i] < 0 ||
        weight.size[i] > weight.shape[i] - weight.offset[i]) {
      return false;
    }
  }
  const uint64_t rows = DigestedRows(weight.shape), block = core::RowsOfDigestBlock(rows);
  return std::all_of(weight.digests.begin(), weight.digests.end(),
                     [&](const auto& digest) { return digest.second.size() == (rows + block - 1) / block; });
}

std::optional<RecordedWeight> WeightOf(const v1::Record& record) {
  const v1::Value* const value = Find(record.fields(), "value");
  const v1::Value* const dtype = value == nullptr ? nullptr : Find(*value, "dtype");
  if (dtype == nullptr) return std::nullopt;
  auto shape = Numbers<int64_t>(Find(*value, "shape")), offset = Numbers<int64_t>(Find(*value, "offset")),
       size = Numbers<int64_t>(Find(*value, "size"));
  auto blocks = Numbers<uint64_t>(Find(*value, "blocks"));
  const v1::Value* const casts = Find(*value, "cast");
  if (!shape || !offset || !size || !blocks || casts == nullptr) return std::nullopt;
  RecordedWeight weight{DTypeOfName(dtype->text()), *std::move(shape), *std::move(offset), *std::move(size), {}};
  weight.digests.emplace(weight.dtype, *std::move(blocks));
  for (const v1::Value::Entry& cast : casts->dict().entries()) {
    auto digest = Numbers<uint64_t>(&cast.value());
    if (!digest) return std::nullopt;
    weight.digests.try_emplace(DTypeOfName(cast.key()), *std::move(digest));
  }
  if (!IsSensible(weight)) return std::nullopt;
  return weight;
}

// Of one place in a tensor: each content that ranks have there, and who has it. The first one is the first rank's.
using Contents = std::vector<std::pair<const RecordedWeight*, std::set<size_t>>>;

HeldWeight Joined(const std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, Contents>& places,
                  size_t number) {
  HeldWeight held;
  uint64_t told = 0;
  for (const auto& [place, contents] : places) {
    const auto& [part, ranks] = contents[number < contents.size() ? number : 0];
    DigestedWeight& weight = held.weight;
    if (told == 0 && weight.digests.empty()) {
      weight.dtype = part->dtype;
      weight.shape = part->shape;
      weight.digests = part->digests;
    } else {
      std::erase_if(weight.digests,
                    [&, &part = part](const auto& each) { return !part->digests.contains(each.first); });
      for (auto& [dtype, blocks] : weight.digests) {
        const BlockDigests& more = part->digests.at(dtype);
        for (size_t i = 0; i < blocks.size(); ++i) blocks[i] += more[i];
      }
    }
    told += part->elements();
    if (number == 0 || number < contents.size()) held.ranks.insert(ranks.begin(), ranks.end());
  }
  const uint64_t whole = Product(held.weight.shape);
  held.weight.missing = whole - std::min(told, whole);
  return held;
}

}  // namespace

uint64_t RecordedWeight::elements() const { return Product(size); }

absl::StatusOr<std::map<std::string, RecordedWeight>> WeightsIn(RecordSource& step) {
  std::map<std::string, RecordedWeight> weights;
  std::map<std::string, uint64_t> counts;
  const absl::Status status = step.ForEachRecordNamed(
      [](const std::string& full_name, uint32_t) { return full_name.starts_with(kWeightsHead); },
      [&](const v1::Record& record, uint64_t) {
        std::string_view name = record.full_name();
        if (record.kind() != v1::RECORD_DEBUG || !name.ends_with(kWeightsTail)) return absl::OkStatus();
        name.remove_prefix(kWeightsHead.size());
        name.remove_suffix(kWeightsTail.size());
        const size_t dot = name.rfind('.');
        std::optional<RecordedWeight> weight = WeightOf(record);
        if (dot == std::string_view::npos || !weight) return absl::OkStatus();
        const uint64_t count = std::strtoull(std::string(name.substr(dot + 1)).c_str(), nullptr, 10);
        const std::string tensor(name.substr(0, dot));
        if (const auto [known, is_new] = counts.try_emplace(tensor, count); !is_new && known->second > count) {
          return absl::OkStatus();
        }
        counts[tensor] = count;
        weights.insert_or_assign(tensor, *std::move(weight));
        return absl::OkStatus();
      });
  if (!status.ok()) return status;
  return weights;
}

std::vector<HeldWeight> JoinRanks(const std::vector<std::pair<size_t, const RecordedWeight*>>& recorded) {
  // Ranks that tell another shape or dtype are no shards of this tensor.
  std::vector<std::pair<v1::DType, std::vector<int64_t>>> kinds;
  for (const auto& [rank, part] : recorded) {
    std::pair kind(part->dtype, part->shape);
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(std::move(kind));
  }
  std::vector<HeldWeight> held;
  for (const auto& [dtype, shape] : kinds) {
    std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, Contents> places;
    size_t most = 0;
    for (const auto& [rank, part] : recorded) {
      if (part->dtype != dtype || part->shape != shape || (part->elements() == 0 && Product(shape) > 0)) continue;
      Contents& contents = places[{part->offset, part->size}];
      const auto same = std::find_if(contents.begin(), contents.end(), [&, &part = part](const auto& content) {
        return content.first->digests == part->digests;
      });
      if (same == contents.end()) {
        contents.push_back({part, {rank}});
      } else {
        same->second.insert(rank);
      }
      most = std::max(most, contents.size());
    }
    for (size_t number = 0; number < most; ++number) held.push_back(Joined(places, number));
  }
  return held;
}

}  // namespace msprobe::server
