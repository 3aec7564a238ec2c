#include "server/shards/shard_list.h"

#include <xxhash.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

// Bytes of sockaddr_un::sun_path without the final zero.
constexpr size_t kLongestSocketPath = 107;

bool IsAddress(std::string_view address) {
  if (address.starts_with("unix:"))
    return address.size() > 6 && address[5] == '/' && address.size() <= 5 + kLongestSocketPath;
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  uint32_t port = 0;
  const std::string_view text = address.substr(colon + 1);
  if (!absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &port) || port < 1 || port > 65535) return false;
  return address.find_first_of(" \t/\"") == std::string_view::npos;
}

absl::StatusOr<std::string> Content(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(Cat(path, " cannot be read"));
  std::string content;
  for (std::string line; std::getline(file, line);) content += line.substr(0, line.find('#')) + ",";
  return content;
}

uint64_t Weight(std::string_view shard, std::string_view run, std::string_view rank) {
  const std::string bytes = Cat(shard, std::string_view("\0", 1), run, std::string_view("\0", 1), rank);
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace

absl::StatusOr<ShardList> ParseShardList(const std::string& text) {
  std::string addresses = text;
  if (text.starts_with('@')) {
    auto content = Content(text.substr(1));
    if (!content.ok()) return content.status();
    addresses = *std::move(content);
  }
  ShardList shards;
  for (absl::string_view part : absl::StrSplit(addresses, ',')) {
    const absl::string_view address = absl::StripAsciiWhitespace(part);
    if (address.empty()) continue;
    shards.emplace_back(address);
    if (!IsAddress(shards.back())) {
      return absl::InvalidArgumentError(
          Cat("\"", shards.back(), "\" is no address; it should be host:port or unix:/path"));
    }
  }
  std::sort(shards.begin(), shards.end());
  if (const auto twice = std::adjacent_find(shards.begin(), shards.end()); twice != shards.end()) {
    return absl::InvalidArgumentError(Cat("\"", *twice, "\" stands there twice"));
  }
  return shards;
}

const std::string& ShardOfRank(const ShardList& shards, std::string_view run, const v1::Rank& rank) {
  std::string code;
  AppendU32(code, RankCode(rank));
  return *std::max_element(shards.begin(), shards.end(), [&](const std::string& a, const std::string& b) {
    return Weight(a, run, code) < Weight(b, run, code);
  });
}

ShardList ShardsByWeight(const ShardList& shards, std::string_view run) {
  ShardList sorted = shards;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const std::string& a, const std::string& b) { return Weight(a, run, "") > Weight(b, run, ""); });
  return sorted;
}

}  // namespace msprobe::server
