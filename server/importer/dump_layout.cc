#include "server/importer/dump_layout.h"

#include <limits>
#include <string_view>

#include "absl/strings/numbers.h"
#include "server/format/cat.h"
#include "server/importer/file_source.h"

namespace msprobe::server {
namespace {

constexpr size_t kMaxNamed = 20;

constexpr uint32_t kMaxStep = std::numeric_limits<uint32_t>::max();
constexpr uint32_t kMaxRank = std::numeric_limits<int32_t>::max();  // RankFits

// Whether part is prefix and a number, which goes to `number`.
absl::StatusOr<bool> HasNumber(std::string_view part, std::string_view prefix, uint32_t largest, uint32_t& number) {
  if (!part.starts_with(prefix)) return false;
  const std::string_view digits = part.substr(prefix.size());
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return false;
  if (!absl::SimpleAtoi(AbslView(digits), &number) || number > largest) {
    return absl::InvalidArgumentError(Cat(part, ": a number of up to ", largest, " is expected behind ", prefix));
  }
  return true;
}

// What the name of a directory says of the step or the rank of the files in it.
absl::Status ReadPart(std::string_view part, uint32_t& step, std::pair<int, uint32_t>& rank) {
  uint32_t number = 0;
  auto found = HasNumber(part, "step", kMaxStep, number);
  if (!found.ok()) return found.status();
  if (*found) step = number;
  for (const auto& [prefix, kind] : {std::pair("rank", v1::Rank::RANK), std::pair("proc", v1::Rank::PROCESS)}) {
    found = HasNumber(part, prefix, kMaxRank, number);
    if (!found.ok()) return found.status();
    if (*found) rank = {kind, number};
  }
  return absl::OkStatus();
}

std::vector<std::string_view> Parts(std::string_view path) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    parts.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

absl::StatusOr<DumpLayout> FindSteps(const std::vector<std::string>& paths, uint32_t default_step,
                                     const v1::Rank& default_rank, std::vector<std::string>& warnings) {
  DumpLayout layout;
  size_t left_out = 0;
  for (const std::string& path : paths) {
    if (!IsSafePath(path)) return absl::InvalidArgumentError(Cat("'", path, "' is not a relative path"));
    std::vector<std::string_view> parts = Parts(path);
    const std::string_view file = parts.back();
    parts.pop_back();
    const bool tensor = !parts.empty() && parts.back() == "dump_tensor_data";
    if (tensor) parts.pop_back();
    const bool known = tensor || file == "dump.json" || file == "stack.json" || file == "construct.json" ||
                       file == "debug.json" || file == "INCOMPLETE";
    if (!known) {
      if (file != "dump_error_info.log" && ++left_out <= kMaxNamed) {
        warnings.push_back(Cat(path, ": left out, a dump has no such file"));
      }
      continue;
    }
    uint32_t step = default_step;
    std::pair<int, uint32_t> rank = {default_rank.kind(), default_rank.number()};
    std::string directory;
    for (std::string_view part : parts) {
      if (absl::Status status = ReadPart(part, step, rank); !status.ok()) {
        return absl::InvalidArgumentError(Cat(path, ": ", StdView(status.message())));
      }
      directory += directory.empty() ? std::string(part) : Cat("/", part);
    }
    auto [it, inserted] = layout[rank].emplace(step, StepFiles());
    StepFiles& files = it->second;
    if (inserted) {
      files.directory = directory;
    } else if (files.directory != directory) {
      return absl::InvalidArgumentError(Cat("'", files.directory, "' and '", directory, "' are both step ", step,
                                            " of one rank; give one of the two"));
    }
    if (tensor) {
      files.tensors[std::string(file)] = path;
    } else if (file == "INCOMPLETE") {
      files.incomplete = true;
    } else {
      (file == "dump.json"    ? files.dump
       : file == "stack.json" ? files.stack
       : file == "debug.json" ? files.debug
                              : files.construct) = path;
    }
  }
  if (left_out > kMaxNamed) warnings.push_back(Cat(left_out - kMaxNamed, " more files were left out"));
  for (const auto& [rank, steps] : layout) {
    for (const auto& [step, files] : steps) {
      if (files.dump.empty() && files.debug.empty()) {
        return absl::InvalidArgumentError(Cat("'", files.directory, "' has neither dump.json nor debug.json"));
      }
    }
  }
  if (layout.empty()) return absl::InvalidArgumentError("no dump.json and no debug.json among the files");
  return layout;
}

}  // namespace msprobe::server
