#include "agent/core/transport/packing/source_lines.h"

#include <sys/stat.h>

#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "agent/core/utf8.h"

namespace msprobe::core {
namespace {

constexpr size_t kLargestFile = size_t{16} << 20;
constexpr size_t kHeldBytes = size_t{64} << 20;  // forgotten together beyond this

std::string ReadWhole(const std::string& path) {
  struct stat status;
  // A device or pipe would block or never end.
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return "";
  if (static_cast<size_t>(status.st_size) > kLargestFile) return "";
  std::string content(static_cast<size_t>(status.st_size), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<size_t>(file.gcount()));
  return content;
}

}  // namespace

const SourceLines::File& SourceLines::Read(const std::string& path) {
  if (const auto it = files_.find(path); it != files_.end()) return it->second;
  File file;
  file.content = ReadWhole(path);
  if (!file.content.empty()) file.starts.push_back(0);
  for (size_t i = 0; i + 1 < file.content.size(); ++i) {
    if (file.content[i] == '\n') file.starts.push_back(i + 1);
  }
  if (held_bytes_ > kHeldBytes) {
    files_.clear();
    held_bytes_ = 0;
  }
  held_bytes_ += file.content.size();
  return files_.emplace(path, std::move(file)).first->second;
}

std::string SourceLines::Line(const std::string& path, uint32_t line) {
  absl::flat_hash_map<uint32_t, std::string>& given = given_[path];
  const auto [it, is_new] = given.try_emplace(line);
  if (is_new) it->second = ReadLine(path, line);
  return it->second;
}

std::string SourceLines::ReadLine(const std::string& path, uint32_t line) {
  const File& file = Read(path);
  if (line == 0 || line > file.starts.size()) return "";
  const absl::string_view rest = absl::string_view(file.content).substr(file.starts[line - 1]);
  return ToUtf8(std::string(absl::StripAsciiWhitespace(rest.substr(0, rest.find('\n')))));
}

}  // namespace msprobe::core
