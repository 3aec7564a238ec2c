#include "server/access/tokens.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_split.h"
#include "server/format/cat.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

constexpr absl::Duration kLook = absl::Seconds(1);
constexpr size_t kShortestToken = 16;
constexpr size_t kLongestToken = 4096;

absl::Status Bad(const std::string& path, int line, std::string_view why) {
  return absl::InvalidArgumentError(
      Cat("--tokens=", path, ", line ", line, ": ", why,
          "; a line is ROLE[,ROLE...] NAME TOKEN with the roles write, read, control, work "
          "and admin, and a token of 16 to 4096 bytes without spaces"));
}

}  // namespace

bool SameSecret(std::string_view one, std::string_view other) {
  volatile unsigned char differing = one.size() == other.size() ? 0 : 1;
  for (size_t i = 0; i < other.size(); ++i) {
    const auto mine = static_cast<unsigned char>(one.empty() ? 0 : one[i % one.size()]);
    differing = differing | static_cast<unsigned char>(mine ^ static_cast<unsigned char>(other[i]));
  }
  return differing == 0;
}

bool Tokens::Bearer::Has(Role role) const {
  return std::any_of(roles.begin(), roles.end(), [role](Role has) { return has == role || has == Role::kAdmin; });
}

absl::StatusOr<std::unique_ptr<Tokens>> Tokens::Load(std::string path, std::function<absl::Time()> now) {
  std::unique_ptr<Tokens> tokens(new Tokens(std::move(path), std::move(now)));
  absl::MutexLock lock(&tokens->mu_);
  tokens->stamp_ = tokens->StampOfFile();
  auto lines = Read(tokens->path_);
  if (!lines.ok()) return lines.status();
  tokens->lines_ = *std::move(lines);
  tokens->WarnOfReaders();
  return tokens;
}

absl::StatusOr<std::vector<Tokens::Line>> Tokens::Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::InvalidArgumentError(Cat("--tokens=", path, ": the file cannot be read"));
  std::vector<Line> lines;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    const std::vector<std::string> words = absl::StrSplit(text, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words.front().front() == '#') continue;
    if (words.size() != 3) return Bad(path, number, Cat("it has ", words.size(), " words instead of 3"));
    Line line;
    for (const std::string& name : std::vector<std::string>(absl::StrSplit(words[0], ','))) {
      const std::optional<Role> role = RoleOfName(name);
      if (!role.has_value()) return Bad(path, number, Cat("\"", name, "\" is not a role"));
      line.bearer.roles.push_back(*role);
    }
    line.bearer.name = words[1];
    line.token = words[2];
    if (line.token.size() < kShortestToken || line.token.size() > kLongestToken) {
      return Bad(path, number, Cat("the token has ", line.token.size(), " bytes"));
    }
    for (const Line& before : lines) {
      if (before.token == line.token) return Bad(path, number, "the token stands in an earlier line too");
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

Tokens::Stamp Tokens::StampOfFile() const {
  struct stat file {};
  if (stat(path_.c_str(), &file) != 0) return {};
  return {file.st_ctim.tv_sec, file.st_ctim.tv_nsec, file.st_size, file.st_ino, file.st_mode};
}

void Tokens::WarnOfReaders() const {
  struct stat file {};
  if (stat(path_.c_str(), &file) != 0 || (file.st_mode & 06) == 0) return;
  LogWarning("--tokens={} is open to every user of this machine, who can then do what its tokens may: chmod o-rw {}",
             path_, path_);
}

void Tokens::ReloadIfChanged() {
  const absl::Time now = now_();
  // A clock that was set back must not keep revoked tokens valid.
  if (now >= looked_ && now < looked_ + kLook) return;
  looked_ = now;
  const Stamp stamp = StampOfFile();
  if (stamp == stamp_) return;
  stamp_ = stamp;
  auto lines = Read(path_);
  if (!lines.ok()) {
    LogError("{}; the tokens of before stay in force", lines.status().ToString());
    return;
  }
  lines_ = *std::move(lines);
  WarnOfReaders();
  LogInfo("{} tokens are read again from {}", lines_.size(), path_);
}

absl::StatusOr<Tokens::Bearer> Tokens::Find(std::string_view token) {
  absl::MutexLock lock(&mu_);
  ReloadIfChanged();
  const Line* found = nullptr;
  for (const Line& line : lines_) {
    if (SameSecret(token, line.token)) found = &line;
  }
  if (found == nullptr) return absl::NotFoundError("nobody has this token");
  return found->bearer;
}

}  // namespace msprobe::server
