#include "server/analysis/table/row_builder.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "absl/strings/str_format.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kWays[] = {".input", ".input", ".input", ".parameters", ".output", ""};
constexpr RowState kStates[] = {RowState::kInput, RowState::kInput, RowState::kInput, RowState::kParameters,
                                RowState::kOutput};

bool HasPart(std::string_view name, std::string_view part) {
  for (size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const size_t after = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (after == name.size() || name[after] == '.')) return true;
  }
  return false;
}

std::string_view LastPart(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// "parameters_grad" last, or last but one.
bool IsGradientName(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  if (name.substr(dot + 1) == "parameters_grad") return true;
  return LastPart(name.substr(0, dot)) == "parameters_grad";
}

// Arguments by these names are ranks, which mindstudio-probe shows as texts.
bool IsRankName(std::string_view name) {
  return name == "src" || name == "dst" || name == "group_src" || name == "group_dst";
}

}  // namespace

std::optional<RowBuilder::Section> RowBuilder::SectionOf(std::string_view key) {
  if (key == "input_args") return kInputArgs;
  if (key == "input_kwargs") return kInputKwargs;
  if (key == "input") return kInput;
  if (key == "parameters") return kParameters;
  if (key == "output") return kOutput;
  return std::nullopt;
}

void RowBuilder::Begin(std::string_view entry) {
  path_ = entry;
  entry_size_ = entry.size();
  first_row_ = static_cast<uint32_t>(table_.rows.size());
  is_debug_ = LastPart(entry) == "debug";
  is_gradients_ = IsGradientName(entry);
  in_gradients_ = HasPart(entry, "parameters_grad");
}

void RowBuilder::Open(Section section) {
  section_ = section;
  path_.append(kWays[section]);
}

size_t RowBuilder::Enter(std::string_view key) {
  const size_t size = path_.size();
  path_ += '.';
  path_ += key;
  return size;
}

size_t RowBuilder::Enter(int index) {
  const size_t size = path_.size();
  if (in_gradients_) return size;
  char digits[16];
  const char* const end = std::to_chars(digits, digits + sizeof(digits), index).ptr;
  path_ += '.';
  path_.append(digits, static_cast<size_t>(end - digits));
  return size;
}

uint32_t RowBuilder::Put(Row row) {
  row.state = section_ != kWhole ? kStates[section_] : is_debug_ ? RowState::kDebug : RowState::kParametersGrad;
  row.name = row.data_name.empty() ? table_.arena.Add(path_) : row.data_name.substr(0, row.data_name.rfind('.'));
  table_.rows.push_back(row);
  sections_.push_back(section_);
  return static_cast<uint32_t>(table_.rows.size() - 1);
}

uint32_t RowBuilder::AddNull() {
  Row row;
  row.is_null = true;
  row.type = "NoneType";
  return Put(row);
}

uint32_t RowBuilder::AddTensor(Row row) {
  row.is_tensor = true;
  return Put(row);
}

uint32_t RowBuilder::AddScalar(const ScalarLeaf& leaf, Row row) {
  const std::string_view text = leaf.value ? std::string_view(leaf.value->text) : "None";
  const auto fill = [&row](Cell cell) { row.statistics.fill(cell); };
  row.type = table_.text(table_.Intern(leaf.type));
  row.dtype = table_.Intern(leaf.type);
  row.shape = table_.Intern("[]");
  row.checksum = leaf.checksum;
  if (leaf.type == "torch.Size" || leaf.type == "slice") {
    if (leaf.value) row.said = table_.arena.Add(text);
  } else if (leaf.format) {
    row.said = table_.arena.Add(*leaf.format);
  }
  if (leaf.type == "torch.Size") {
    row.shape = table_.Intern(text);
  } else if (leaf.type == "slice") {
    // The shape of the value as an array.
    const std::optional<size_t> items = leaf.value ? leaf.value->items : std::nullopt;
    row.shape = table_.Intern(items ? Cat("(", *items, ",)") : "()");
  } else if (leaf.type == "ellipsis") {
    fill(Cell::Text(table_.arena.Add(text)));
  } else if (IsRankName(LastPart(path_)) || leaf.type == "torch.ProcessGroup") {
    const bool ranks = leaf.type == "torch.ProcessGroup" && leaf.group_ranks;
    fill(Cell::Text(table_.arena.Add(ranks ? std::string_view(*leaf.group_ranks) : text)));
    row.checksum = row.statistics[0].view();
  } else {
    row.dtype = table_.Intern(Cat("<class '", leaf.value ? leaf.value->python : "NoneType", "'>"));
    if (leaf.value) fill(leaf.value->cell);
  }
  if (row.checksum.empty()) {
    // mindstudio-probe's checksum of a scalar is that of its text.
    const std::string_view said = leaf.value ? text : "";
    const uLong crc = crc32(0, reinterpret_cast<const Bytef*>(said.data()), static_cast<uInt>(said.size()));
    row.checksum = table_.arena.Add(absl::StrFormat("%08x", static_cast<uint32_t>(crc)));
  }
  return Put(row);
}

void RowBuilder::Finish(uint32_t token) {
  Entry entry;
  entry.name = table_.arena.Add(std::string_view(path_).substr(0, entry_size_));
  entry.first_row = first_row_;
  entry.rows = static_cast<uint32_t>(table_.rows.size()) - first_row_;
  entry.token = token;
  if (!std::is_sorted(sections_.begin(), sections_.end())) {
    std::vector<uint32_t> order(sections_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return sections_[a] < sections_[b]; });
    const std::vector<Row> rows(table_.rows.begin() + first_row_, table_.rows.end());
    std::vector<uint32_t> moved(order.size());
    for (uint32_t i = 0; i < order.size(); ++i) {
      table_.rows[first_row_ + i] = rows[order[i]];
      moved[order[i]] = i;
    }
    for (PointToPoint& message : messages_) message.row = first_row_ + moved[message.row - first_row_];
    std::sort(messages_.begin(), messages_.end(),
              [](const PointToPoint& a, const PointToPoint& b) { return a.row < b.row; });
  }
  table_.messages.insert(table_.messages.end(), messages_.begin(), messages_.end());
  table_.entries.push_back(entry);
  sections_.clear();
  messages_.clear();
}

}  // namespace msprobe::server
