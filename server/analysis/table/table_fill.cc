#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <variant>

#include "absl/strings/str_format.h"
#include "server/analysis/table/python_text.h"
#include "server/analysis/table/table_layout.h"
#include "server/format/cat.h"
#include "server/format/storage/block_columns.h"

namespace msprobe::server {
namespace {

std::string_view HexOf(uint32_t value, char (&out)[8]) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int i = 7; i >= 0; --i, value >>= 4) out[i] = kDigits[value & 15];
  return {out, sizeof(out)};
}

// Puts the numbers of a step's columns into the rows of its layout.
class Filling {
 public:
  Filling(const TableLayout& layout, StepTable& table, StoredContents& contents)
      : layout_(layout), table_(table), contents_(contents) {}

  absl::Status Add(const v1::Block& block) {
    if (absl::Status status = Check(block); !status.ok()) return status;
    shapes_.clear();
    for (const v1::Shape& shape : block.shapes()) shapes_.push_back(ShapeOf(shape));
    non_finite_.assign(block.non_finite_size() == 0 ? 0 : static_cast<size_t>(block.leaf_flags_size()), -1);
    for (int i = 0; i < block.non_finite_size(); ++i) {
      const uint32_t leaf = block.non_finite(i).leaf();
      if (leaf >= non_finite_.size()) return Loss("non_finite", leaf, non_finite_.size());
      non_finite_[leaf] = i;
    }
    at_ = {};
    for (int i = 0; i < block.leaf_flags_size(); ++i) {
      const TableLayout::Leaf& leaf = layout_.leaves[leaves_++];
      AddLeaf(block, i, leaf);
      if (block.edge_size() != 0) AddEdge(block, i, leaf);
    }
    for (int64_t value : block.integers()) {
      const TableLayout::Scalar scalar = layout_.integers[integers_++];
      if (scalar.row >= 0) AddInteger(value, scalar);
    }
    for (double value : block.floats()) {
      const TableLayout::Scalar scalar = layout_.floats[floats_++];
      if (scalar.row >= 0) AddFloat(value, scalar);
    }
    return absl::OkStatus();
  }

  absl::Status Finish() const {
    if (leaves_ != layout_.leaves.size()) return Loss("leaf_flags", leaves_, layout_.leaves.size());
    if (integers_ != layout_.integers.size()) return Loss("integers", integers_, layout_.integers.size());
    if (floats_ != layout_.floats.size()) return Loss("floats", floats_, layout_.floats.size());
    return absl::OkStatus();
  }

 private:
  static absl::Status Loss(std::string_view column, uint64_t got, uint64_t wanted) {
    return absl::DataLossError(
        Cat("a stored block: column ", column, " has ", got, " values, ", wanted, " are needed"));
  }

  // Every column as long as the flags ask.
  absl::Status Check(const v1::Block& block) const {
    FragmentColumns end;
    for (uint32_t flags : block.leaf_flags()) {
      end.statistics += (flags & v1::LEAF_STATISTICS) != 0;
      end.narrow += TakesNarrow(flags);
      end.wide += TakesWide(flags);
      end.integer += TakesInteger(flags);
      end.crc32 += (flags & v1::LEAF_CRC32) != 0;
      end.xor64 += (flags & v1::LEAF_XOR) != 0;
      end.payload += (flags & v1::LEAF_PAYLOAD) != 0;
    }
    const auto size = [](const auto& column) { return static_cast<uint64_t>(column.size()); };
    const struct {
      std::string_view name;
      uint64_t got;
      uint64_t wanted;
    } columns[] = {{"shape", size(block.shape()), size(block.leaf_flags())},
                   {"narrow", size(block.narrow()), uint64_t{end.narrow} * 5},
                   {"wide", size(block.wide()), uint64_t{end.wide} * 5},
                   {"integer_extremes", size(block.integer_extremes()), uint64_t{end.integer} * 2},
                   {"integer_moments", size(block.integer_moments()), uint64_t{end.integer} * 3},
                   {"zero_count", size(block.zero_count()), end.statistics},
                   {"crc32", size(block.crc32()), end.crc32},
                   {"xor64", size(block.xor64()), end.xor64},
                   {"payload", size(block.payload()), end.payload}};
    for (const auto& column : columns) {
      if (column.got != column.wanted) return Loss(column.name, column.got, column.wanted);
    }
    if (block.edge_size() != 0) {
      const auto producers = std::count_if(block.edge().begin(), block.edge().end(), &NamesProducer);
      for (uint64_t got : {size(block.edge_distance()), size(block.edge_leaf())}) {
        if (got != static_cast<uint64_t>(producers))
          return Loss("edge_distance", got, static_cast<uint64_t>(producers));
      }
      if (block.edge_size() != block.leaf_flags_size()) {
        return Loss("edge", size(block.edge()), size(block.leaf_flags()));
      }
    }
    for (uint32_t shape : block.shape()) {
      if (shape >= static_cast<uint32_t>(block.shapes_size())) return Loss("shapes", size(block.shapes()), shape);
    }
    if (leaves_ + size(block.leaf_flags()) > layout_.leaves.size()) {
      return Loss("leaf_flags", leaves_ + size(block.leaf_flags()), layout_.leaves.size());
    }
    if (integers_ + size(block.integers()) > layout_.integers.size()) {
      return Loss("integers", integers_ + size(block.integers()), layout_.integers.size());
    }
    if (floats_ + size(block.floats()) > layout_.floats.size()) {
      return Loss("floats", floats_ + size(block.floats()), layout_.floats.size());
    }
    return absl::OkStatus();
  }

  uint32_t ShapeOf(const v1::Shape& shape) {
    text_.assign(1, '[');
    for (int64_t dim : shape.dims()) {
      if (text_.size() > 1) text_ += ", ";
      char digits[24];
      text_.append(digits, static_cast<size_t>(std::to_chars(digits, digits + sizeof(digits), dim).ptr - digits));
    }
    text_ += ']';
    return table_.Intern(text_);
  }

  struct Numbers {
    Cell max;
    Cell min;
    double mean = 0;
    double norm = 0;
    double variance = 0;
    bool any = false;
    bool has_mean = true;
    bool has_norm = true;
    bool has_variance = true;
  };

  Cell IntegerCell(int64_t value, v1::DType dtype) {
    if (dtype == v1::DTYPE_BOOL) return Cell::Boolean(value != 0);
    return dtype == v1::DTYPE_UINT64 ? Cell::Unsigned(static_cast<uint64_t>(value)) : Cell::Integer(value);
  }

  static Cell AsReal(const Cell& cell) { return cell.is_whole() ? Cell::Real(cell.number()) : cell; }

  Numbers NumbersOf(const v1::Block& block, uint32_t flags, const TableLayout::Leaf& leaf) {
    Numbers numbers;
    if (TakesInteger(flags)) {
      const int i = static_cast<int>(at_.integer++);
      numbers.any = true;
      numbers.max = IntegerCell(block.integer_extremes(i * 2), leaf.dtype);
      numbers.min = IntegerCell(block.integer_extremes(i * 2 + 1), leaf.dtype);
      numbers.mean = block.integer_moments(i * 3);
      numbers.norm = block.integer_moments(i * 3 + 1);
      numbers.variance = block.integer_moments(i * 3 + 2);
    } else if (TakesNarrow(flags)) {
      const float* const five = block.narrow().data() + size_t{at_.narrow++} * 5;
      numbers = Five(five);
    } else if (TakesWide(flags)) {
      const double* const five = block.wide().data() + size_t{at_.wide++} * 5;
      numbers = Five(five);
    }
    if ((flags & v1::LEAF_IMPORTED) != 0) ClearUnknown(numbers);
    return numbers;
  }

  template <typename Number>
  static Numbers Five(const Number* five) {
    Numbers numbers;
    numbers.any = true;
    numbers.max = Cell::Real(five[0]);
    numbers.min = Cell::Real(five[1]);
    numbers.mean = five[2];
    numbers.norm = five[3];
    numbers.variance = five[4];
    return numbers;
  }

  // What an import did not know, as the decoder of records leaves it out.
  static void ClearUnknown(Numbers& numbers) {
    numbers.has_variance = false;
    const double max = numbers.max.kind == Cell::Kind::kReal ? numbers.max.real : 0;
    const double min = numbers.min.kind == Cell::Kind::kReal ? numbers.min.real : 0;
    if (std::isnan(max)) return;
    const bool opposite_infinities = std::isinf(max) && std::isinf(min) && max != min;
    if (std::isnan(numbers.mean) && !opposite_infinities) numbers.has_mean = false;
    if (std::isnan(numbers.norm)) numbers.has_norm = false;
  }

  void AddLeaf(const v1::Block& block, int i, const TableLayout::Leaf& leaf) {
    const uint32_t flags = block.leaf_flags(i);
    const Numbers numbers = NumbersOf(block, flags, leaf);
    const uint64_t zeros =
        (flags & v1::LEAF_STATISTICS) != 0 ? block.zero_count(static_cast<int>(at_.statistics++)) : 0;
    const int crc = (flags & v1::LEAF_CRC32) != 0 ? static_cast<int>(at_.crc32++) : -1;
    const int xored = (flags & v1::LEAF_XOR) != 0 ? static_cast<int>(at_.xor64++) : -1;
    const int payload = (flags & v1::LEAF_PAYLOAD) != 0 ? static_cast<int>(at_.payload++) : -1;
    if (leaf.row < 0) return;
    Row& row = table_.rows[static_cast<size_t>(leaf.row)];
    const v1::Shape& shape = block.shapes(static_cast<int>(block.shape(i)));
    row.shape = shapes_[block.shape(i)];
    const bool zero_d = shape.dims_size() == 0;
    const bool by_xor = layout_.xor_checksum && !leaf.numpy;
    if (numbers.any && leaf.rules.statistics && !by_xor) {
      row.statistics[0] = numbers.max;
      if (leaf.rules.own_value && zero_d) {
        row.statistics[1] = row.statistics[2] = row.statistics[3] = numbers.max;
      } else {
        row.statistics[1] = numbers.min;
        if (leaf.rules.real_extremes) {
          for (int k : {0, 1}) row.statistics[k] = AsReal(row.statistics[k]);
        }
        if (numbers.has_mean && leaf.rules.mean) row.statistics[2] = Cell::Real(numbers.mean);
        if (numbers.has_norm && leaf.rules.norm) row.statistics[3] = Cell::Real(numbers.norm);
      }
    }
    if (by_xor && xored >= 0) PutXor(block.xor64(xored), shape, leaf, row);
    if (layout_.crc32 && !leaf.numpy && crc >= 0) {
      char digits[8];
      row.checksum = table_.arena.Add(HexOf(block.crc32(crc), digits));
    }
    if (numbers.any) {
      ExtendedStatistics& more = table_.extended[static_cast<size_t>(row.extended)];
      more.mean = numbers.mean;
      more.norm = numbers.norm;
      more.variance = numbers.variance;
      more.has_mean = numbers.has_mean;
      more.has_norm = numbers.has_norm;
      more.has_variance = more.has_counts = numbers.has_variance;
      more.zero_count = zeros;
      if (numbers.has_variance && !non_finite_.empty() && non_finite_[static_cast<size_t>(i)] >= 0) {
        const v1::NonFinite& counts = block.non_finite(non_finite_[static_cast<size_t>(i)]);
        more.nan_count = counts.nan_count();
        more.positive_inf_count = counts.positive_inf_count();
        more.negative_inf_count = counts.negative_inf_count();
      }
    }
    if (payload >= 0 && !row.data_name.empty()) {
      contents_.try_emplace(row.data_name, StoredContent{&block.payload(payload), leaf.slot, &shape});
    }
  }

  void AddEdge(const v1::Block& block, int i, const TableLayout::Leaf& leaf) {
    const uint32_t kind = block.edge(i);
    const int at = NamesProducer(kind) ? static_cast<int>(at_.producers++) : -1;
    if (leaf.row < 0 || kind > static_cast<uint32_t>(EdgeKind::kSum)) return;
    Row& row = table_.rows[static_cast<size_t>(leaf.row)];
    if (at >= 0) {
      const auto end = layout_.ends.find(leaf.ordinal - static_cast<uint64_t>(block.edge_distance(at)));
      if (end == layout_.ends.end() || block.edge_leaf(at) >= end->second.leaves) return;
      row.producer = layout_.leaves[end->second.first_leaf + block.edge_leaf(at)].row;
      if (row.producer < 0) return;
    }
    row.edge = static_cast<EdgeKind>(kind);
  }

  void PutXor(uint64_t value, const v1::Shape& shape, const TableLayout::Leaf& leaf, Row& row) {
    for (int64_t dim : shape.dims()) {
      if (dim == 0) return;
    }
    const ShownXor shown = ShowXor(leaf.slot->type(), leaf.dtype, shape.dims().empty(), value);
    if (const auto* real = std::get_if<double>(&shown)) row.checksum = table_.arena.Add(PythonNumber(*real));
    if (const auto* word = std::get_if<uint64_t>(&shown)) {
      row.checksum = table_.arena.Add(absl::StrFormat("0x%016x", *word));
    }
  }

  void AddInteger(int64_t value, TableLayout::Scalar scalar) {
    char digits[24];
    const std::string_view text(
        digits, static_cast<size_t>(std::to_chars(digits, digits + sizeof(digits), value).ptr - digits));
    PutScalar(Cell::Integer(value), text, scalar);
  }

  void AddFloat(double value, TableLayout::Scalar scalar) {
    if (!scalar.text && table_.mode != StepTable::Mode::kChecksum) return PutScalar(Cell::Real(value), "", scalar);
    PutScalar(Cell::Real(value), PythonNumber(value), scalar);
  }

  void PutScalar(Cell cell, std::string_view text, TableLayout::Scalar scalar) {
    Row& row = table_.rows[static_cast<size_t>(scalar.row)];
    if (scalar.text) {
      row.checksum = table_.arena.Add(text);
      cell = Cell::Text(row.checksum);
    } else if (table_.mode == StepTable::Mode::kChecksum) {
      char digits[8];
      const uLong crc = ::crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()));
      row.checksum = table_.arena.Add(HexOf(static_cast<uint32_t>(crc), digits));
    }
    row.statistics.fill(cell);
  }

  const TableLayout& layout_;
  StepTable& table_;
  StoredContents& contents_;
  FragmentColumns at_;  // in the block at hand
  std::vector<uint32_t> shapes_;
  std::vector<int> non_finite_;  // leaf of the block -> Block.non_finite; empty: there are none
  std::string text_;
  size_t leaves_ = 0;
  size_t integers_ = 0;
  size_t floats_ = 0;
};

void CopyLayout(const std::shared_ptr<const TableLayout>& layout, StepTable& table) {
  const StepTable& from = layout->table;
  table.texts = from.texts;
  table.interned = from.interned;
  table.framework = from.framework;
  table.task = from.task;
  table.level = from.level;
  table.mode = from.mode;
  table.debug = from.debug;
  table.entries = from.entries;
  table.rows = from.rows;
  table.extended = from.extended;
  table.messages = from.messages;
  table.borrowed = layout;
  table.layout = layout->unique ? layout.get() : nullptr;
}

}  // namespace

absl::Status FillTable(const std::shared_ptr<const TableLayout>& layout, const StepBlocks& blocks, StepTable& table,
                       StoredContents& contents, std::vector<uint64_t>* stack_of) {
  CopyLayout(layout, table);
  Filling filling(*layout, table, contents);
  for (const auto& block : blocks) {
    if (absl::Status status = filling.Add(*block); !status.ok()) return status;
  }
  if (absl::Status status = filling.Finish(); !status.ok()) return status;
  if (stack_of == nullptr) return absl::OkStatus();
  std::vector<uint64_t> stack_of_fragment = {0};
  for (const auto& block : blocks) {
    for (uint32_t stack : block->stack()) {
      const bool known = stack != 0 && stack <= static_cast<uint32_t>(block->stacks_size());
      stack_of_fragment.push_back(known ? block->stacks(static_cast<int>(stack) - 1) : 0);
    }
  }
  stack_of->clear();
  for (uint64_t fragment : layout->stack_of) {
    stack_of->push_back(fragment < stack_of_fragment.size() ? stack_of_fragment[fragment] : 0);
  }
  return absl::OkStatus();
}

}  // namespace msprobe::server
