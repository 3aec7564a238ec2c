#include "agent/core/git_checkout.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>

#include "absl/strings/ascii.h"
#include "agent/core/environment.h"
#include "agent/core/utf8.h"

namespace msprobe::core {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestBranch = 256;
constexpr size_t kLongestLine = 4096;
constexpr size_t kLargestRefs = size_t{16} << 20;

bool IsCommit(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) &&
         std::all_of(text.begin(), text.end(), [](unsigned char each) { return absl::ascii_isxdigit(each); });
}

// The first `most` bytes of a regular file; of anything else nothing, as a pipe that another user has put there would
// never end.
std::string Contents(const fs::path& file, size_t most) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return "";
  std::ifstream stream(file, std::ios::binary);
  std::string contents(std::min<size_t>(most, fs::file_size(file, error)), '\0');
  stream.read(contents.data(), static_cast<std::streamsize>(contents.size()));
  contents.resize(static_cast<size_t>(stream.gcount()));
  return contents;
}

std::string FirstLine(const fs::path& file) {
  const std::string contents = Contents(file, kLongestLine);
  return std::string(absl::StripAsciiWhitespace(contents.substr(0, contents.find('\n'))));
}

// What stands behind a prefix; nothing: the text has another one.
std::optional<std::string_view> Behind(std::string_view prefix, std::string_view text) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return text.substr(prefix.size());
}

// Where the checkout's HEAD lies: .git itself, or what a file in its place names. Empty: this is no working tree's top.
fs::path GitDirectory(const fs::path& top) {
  std::error_code error;
  fs::path git = top / ".git";
  if (fs::is_directory(git, error)) return git;
  const std::string line = FirstLine(git);
  const auto named = Behind("gitdir: ", line);
  return named ? top / *named : fs::path();
}

// What a ref points at; empty: nothing.
std::string CommitOf(const fs::path& refs, const std::string& ref) {
  if (std::string loose = FirstLine(refs / ref); IsCommit(loose)) return loose;
  std::istringstream packed(Contents(refs / "packed-refs", kLargestRefs));
  for (std::string line; std::getline(packed, line);) {
    const size_t space = line.find(' ');
    if (space == std::string::npos || line.compare(space + 1, std::string::npos, ref) != 0) continue;
    if (line.resize(space); IsCommit(line)) return line;
  }
  return "";
}

}  // namespace

std::optional<GitCheckout> CheckoutAround(const std::string& path) {
  fs::path directory;
  for (fs::path top = path; directory.empty(); top = top.parent_path()) {
    directory = GitDirectory(top);
    if (directory.empty() && top == top.parent_path()) return std::nullopt;
  }
  const std::string head = FirstLine(directory / "HEAD");
  if (IsCommit(head)) return GitCheckout{.commit = head, .branch = ""};
  const auto ref = Behind("ref: ", head);
  if (!ref) return std::nullopt;
  const std::string common = FirstLine(directory / "commondir");  // a linked worktree's refs lie in the main one's
  std::string commit = CommitOf(common.empty() ? directory : directory / common, std::string(*ref));
  if (commit.empty()) return std::nullopt;
  const std::string_view branch = Behind("refs/heads/", *ref).value_or(*ref).substr(0, kLongestBranch / 3);
  return GitCheckout{.commit = std::move(commit), .branch = HoldsSecret(branch) ? "" : ToUtf8(branch)};
}

}  // namespace msprobe::core
