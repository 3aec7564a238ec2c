#include "server/format/monitor/csv_reader.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>

#include "server/format/cat.h"

namespace msprobe::server {

absl::StatusOr<CsvReader> CsvReader::Open(const std::string& path) {
  auto file = std::make_unique<std::ifstream>(path);
  if (!*file) return absl::NotFoundError(Cat(path, ": ", std::generic_category().message(errno)));
  return CsvReader(path, std::move(file));
}

CsvReader CsvReader::Of(std::string text, std::string path) {
  return CsvReader(std::move(path), std::make_unique<std::istringstream>(std::move(text)));
}

absl::StatusOr<bool> CsvReader::Next(std::vector<std::string_view>& cells) {
  cells.clear();
  do {
    if (!std::getline(*rows_, row_)) return false;
    line_ = ++lines_;
    if (row_.ends_with('\r')) row_.pop_back();
  } while (row_.empty());
  std::string more;
  while (std::count(row_.begin(), row_.end(), '"') % 2 != 0) {
    if (!std::getline(*rows_, more)) {
      return absl::InvalidArgumentError(Cat(path_, ": line ", line_, ": a quote has no end"));
    }
    ++lines_;
    row_ += '\n';
    row_ += more;
    if (row_.ends_with('\r')) row_.pop_back();
  }
  // Cells are unquoted where they stand.
  for (size_t at = 0;;) {
    const size_t begin = at;
    size_t end = at;
    if (at < row_.size() && row_[at] == '"') {
      for (++at; at < row_.size(); ++at) {
        if (row_[at] == '"') {
          if (at + 1 >= row_.size() || row_[at + 1] != '"') break;
          ++at;
        }
        row_[end++] = row_[at];
      }
      at = std::min(row_.find(',', at), row_.size());
    } else {
      end = at = std::min(row_.find(',', at), row_.size());
    }
    cells.emplace_back(row_.data() + begin, end - begin);
    if (at >= row_.size()) return true;
    ++at;
  }
}

}  // namespace msprobe::server
