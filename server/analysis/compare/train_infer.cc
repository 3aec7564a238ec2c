#include "server/analysis/compare/train_infer.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "server/analysis/compare/joined_tensor.h"
#include "server/analysis/compare/train_infer_rows.h"
#include "server/analysis/compat/mindstudio_cells.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kAbsent = "N/A";

// A row of the table: rows of the one side that correspond to rows of the other. Indexes into KeyedRows.
struct Correspondence {
  std::vector<uint32_t> training;
  std::vector<uint32_t> inference;

  static int64_t Place(const std::vector<uint32_t>& rows) { return rows.empty() ? -1 : rows.front(); }
};

// Those of the side `many` that correspond to one row of `one` are together.
std::vector<Correspondence> Correspondences(const std::vector<KeyedRow>& many, const std::vector<KeyedRow>& one,
                                            std::vector<uint32_t> Correspondence::*of_many,
                                            std::vector<uint32_t> Correspondence::*of_one) {
  absl::flat_hash_map<std::string_view, std::vector<uint32_t>> by_key;
  for (uint32_t i = 0; i < many.size(); ++i) by_key[many[i].key].push_back(i);
  absl::flat_hash_map<std::string_view, bool> taken;
  std::vector<Correspondence> found;
  for (uint32_t i = 0; i < one.size(); ++i) {
    Correspondence row;
    row.*of_one = {i};
    if (const auto partners = by_key.find(one[i].key); partners != by_key.end()) {
      row.*of_many = partners->second;
      taken[one[i].key] = true;
    }
    found.push_back(std::move(row));
  }
  for (uint32_t i = 0; i < many.size(); ++i) {
    if (taken.contains(many[i].key)) continue;
    Correspondence row;
    row.*of_many = {i};
    found.push_back(std::move(row));
  }
  return found;
}

// In the order of both sides.
std::vector<Correspondence> InBothOrders(std::vector<Correspondence> rows) {
  const auto ordered = [&rows](std::vector<uint32_t> Correspondence::*side) {
    std::vector<size_t> order(rows.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    const auto place = [&](size_t i) {
      return static_cast<uint64_t>(Correspondence::Place(rows[i].*side));
    };  // -1 last
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) < place(b); });
    return order;
  };
  const std::vector<size_t> by_training = ordered(&Correspondence::training);
  const std::vector<size_t> by_inference = ordered(&Correspondence::inference);
  std::vector<bool> used(rows.size());
  std::vector<Correspondence> result;
  result.reserve(rows.size());
  for (size_t i = 0, j = 0; result.size() < rows.size();) {
    while (used[by_training[i]]) ++i;
    while (used[by_inference[j]]) ++j;
    const size_t training = by_training[i];
    const size_t inference = by_inference[j];
    // The next of the training side, unless it waits for rows that only the inference side has.
    const bool waits = training != inference && !rows[training].inference.empty() && rows[inference].training.empty();
    const size_t next = waits ? inference : training;
    used[next] = true;
    result.push_back(std::move(rows[next]));
  }
  return result;
}

// One tensor without axes of size 1.
class SqueezedTensor : public TensorElements {
 public:
  explicit SqueezedTensor(std::unique_ptr<TensorElements> source)
      : source_(std::move(source)), description_(source_->description()) {
    std::erase(description_.shape, 1);
  }
  const TensorDescription& description() const override { return description_; }
  absl::Status Read(ContentVisitor visit) override { return source_->Read(visit); }

 private:
  const std::unique_ptr<TensorElements> source_;
  TensorDescription description_;
};

// A side of the table.
class AlignedStep : public TableSource {
 public:
  // `joined`: the records whose contents are joined; others that are several rows have no contents.
  AlignedStep(std::unique_ptr<TableSource> source, std::vector<std::string_view> joined)
      : source_(std::move(source)), joined_(std::move(joined)) {
    const StepTable& whole = source_->table();
    table_.framework = whole.framework;
    table_.task = whole.task;
    table_.level = whole.level;
    table_.mode = whole.mode;
    table_.has_stacks = whole.has_stacks;
    table_.stacks = whole.stacks;
  }

  const StepTable& table() const override { return table_; }
  StepTable& mutable_table() override { return table_; }
  const StepTable& whole() const { return source_->table(); }

  void AddAbsent(RowState state) {
    Row row;
    row.name = row.data_name = kAbsent;
    row.dtype = row.shape = table_.Intern(kAbsent);
    row.statistics.fill(Cell::Text(kAbsent));
    row.state = state;
    Add(row, {});
  }

  void AddRows(std::vector<uint32_t> rows) {
    Row row = whole().rows[rows.front()];
    const auto joined = [&](std::string_view separator, auto text) {
      std::string all;
      for (size_t i = 0; i < rows.size(); ++i) all += Cat(i == 0 ? "" : separator, text(whole().rows[rows[i]]));
      return all;
    };
    const bool several = rows.size() > 1;
    if (several) {
      row.name = table_.arena.Add(joined(";  ", [](const Row& part) { return part.name; }));
      row.data_name =
          table_.arena.Add(joined(";", [](const Row& part) { return part.data_name.empty() ? "-1" : part.data_name; }));
    }
    const auto dtype = [&](const Row& part) { return part.is_null ? kAbsent : whole().text(part.dtype); };
    const auto shape = [&](const Row& part) { return part.is_null ? kAbsent : whole().text(part.shape); };
    row.dtype = table_.Intern(joined(";", dtype));
    row.shape = table_.Intern(joined(";", shape));
    row.extended = -1;
    for (size_t i = 0; i < row.statistics.size(); ++i)
      row.statistics[i] = several ? Joined(rows, i) : AsText(row.statistics[i]);
    Add(row, std::move(rows));
  }

  // Rows [first, end) belong to one record.
  void AddEntry(std::string_view name, uint32_t first, uint32_t end, int32_t stack) {
    Entry entry;
    entry.name = name;
    entry.first_row = first;
    entry.rows = end - first;
    entry.stack = stack;
    table_.entries.push_back(entry);
  }

  absl::StatusOr<std::unique_ptr<TensorElements>> OpenTensor(const Row& row) const override {
    const std::vector<uint32_t>& parts = origins_[static_cast<size_t>(&row - table_.rows.data())];
    const auto open = [&](uint32_t part) { return source_->OpenTensor(whole().rows[part]); };
    if (parts.empty()) return absl::NotFoundError("this side has no such row");
    if (parts.size() == 1) return open(parts.front());
    const auto named = [&row](std::string_view part) { return row.data_name.find(part) != std::string_view::npos; };
    if (std::none_of(joined_.begin(), joined_.end(), named)) {
      return absl::NotFoundError("several tensors that are not joined");
    }
    if (named(".input.")) return open(parts.front());
    const size_t axis = named(".parameters.") ? 0 : 1;
    std::vector<std::unique_ptr<TensorElements>> tensors;
    for (const uint32_t part : parts) {
      auto opened = open(part);
      if (!opened.ok()) return opened.status();
      tensors.push_back(std::make_unique<SqueezedTensor>(*std::move(opened)));
      if (!Fits(tensors.front()->description(), tensors.back()->description(), axis)) {
        return absl::InvalidArgumentError(Cat("tensors of different shapes cannot be joined along axis ", axis));
      }
    }
    return std::make_unique<JoinedTensor>(std::move(tensors), axis);
  }

 private:
  static bool Fits(const TensorDescription& a, const TensorDescription& b, size_t axis) {
    if (a.dtype != b.dtype || a.shape.size() != b.shape.size() || axis >= a.shape.size()) return false;
    for (size_t i = 0; i < a.shape.size(); ++i) {
      if (i != axis && a.shape[i] != b.shape[i]) return false;
    }
    return true;
  }

  void Add(const Row& row, std::vector<uint32_t> origin) {
    table_.rows.push_back(row);
    table_.rows.back().ForgetEdge();
    origins_.push_back(std::move(origin));
  }

  // mindstudio-probe writes statistics down and reads them again as floats, or as texts.
  static Cell AsText(const Cell& cell) {
    switch (cell.kind) {
      case Cell::Kind::kInteger:
      case Cell::Kind::kUnsigned:
        return Cell::Real(cell.number());
      case Cell::Kind::kBoolean:
        return Cell::Text(cell.integer != 0 ? "True" : "False");
      case Cell::Kind::kNone:
        return Cell::Text("None");
      case Cell::Kind::kText:
        if (KindOf(cell) == ValueKind::kNumber) return Cell::Real(NumberOf(cell));
        return cell;
      case Cell::Kind::kReal:
        return cell;
    }
    return cell;
  }

  Cell Joined(const std::vector<uint32_t>& rows, size_t statistic) {
    std::optional<double> extreme;
    std::string all;
    for (const uint32_t part : rows) {
      const Cell cell = AsText(whole().rows[part].statistics[statistic]);
      if (!all.empty()) all += ';';
      if (cell.kind != Cell::Kind::kReal) {
        all += cell.view();
        continue;
      }
      AppendReal(cell.real, all);
      if (!extreme.has_value() || (statistic == 0 ? cell.real > *extreme : cell.real < *extreme)) extreme = cell.real;
    }
    if (statistic >= 2) return Cell::Text(table_.arena.Add(all));
    return extreme.has_value() ? Cell::Real(*extreme) : Cell::Text("None");
  }

  const std::unique_ptr<TableSource> source_;
  const std::vector<std::string_view> joined_;
  StepTable table_;
  std::vector<std::vector<uint32_t>> origins_;  // by row: rows of source_
};

}  // namespace

TrainInferSides AlignTrainInfer(std::unique_ptr<TableSource> training, std::unique_ptr<TableSource> inference,
                                TrainingBackend backend) {
  const bool megatron = backend == TrainingBackend::kMegatron;
  const std::vector<KeyedRow> training_rows = KeyedRows(training->table(), backend, true);
  const std::vector<KeyedRow> inference_rows = KeyedRows(inference->table(), backend, false);
  const std::vector<Correspondence> rows = InBothOrders(
      megatron ? Correspondences(inference_rows, training_rows, &Correspondence::inference, &Correspondence::training)
               : Correspondences(training_rows, inference_rows, &Correspondence::training, &Correspondence::inference));

  // The training side's record that a record of the inference side alone is judged with.
  absl::flat_hash_map<uint32_t, uint32_t> training_entries;
  for (const Correspondence& row : rows) {
    if (row.training.empty() || row.inference.empty()) continue;
    training_entries[inference_rows[row.inference.front()].entry] = training_rows[row.training.front()].entry;
  }

  auto target = std::make_unique<AlignedStep>(
      std::move(training),
      megatron ? std::vector<std::string_view>{} : std::vector<std::string_view>{".q_proj.", ".gate_proj."});
  auto golden =
      std::make_unique<AlignedStep>(std::move(inference), megatron ? std::vector<std::string_view>{".gate_up_proj."}
                                                                   : std::vector<std::string_view>{});
  const auto rows_of = [](const std::vector<uint32_t>& places, const std::vector<KeyedRow>& keyed) {
    std::vector<uint32_t> found;
    for (const uint32_t place : places) found.push_back(keyed[place].row);
    return found;
  };
  RowMatch match;
  std::string_view record;
  uint32_t first = 0;
  int32_t stack = -1;
  const auto close = [&](uint32_t end) {
    if (end == first) return;
    target->AddEntry(record, first, end, stack);
    golden->AddEntry(record, first, end, -1);
    first = end;
  };
  for (uint32_t i = 0; i < rows.size(); ++i) {
    const Correspondence& row = rows[i];
    const Entry* of_training = nullptr;
    std::string_view name;
    if (!row.training.empty()) {
      of_training = &target->whole().entries[training_rows[row.training.front()].entry];
      name = of_training->name;
    } else {
      const uint32_t entry = inference_rows[row.inference.front()].entry;
      const auto partner = training_entries.find(entry);
      name = partner == training_entries.end() ? golden->whole().entries[entry].name
                                               : target->whole().entries[partner->second].name;
    }
    if (name != record) {
      close(i);
      record = name;
      stack = -1;
      if (of_training != nullptr && of_training->first_row == training_rows[row.training.front()].row) {
        stack = of_training->stack;
      }
    }
    match.pairs.push_back({static_cast<int32_t>(i), row.inference.empty() ? kNoRow : static_cast<int32_t>(i)});
    if (row.training.empty()) {
      target->AddAbsent(golden->whole().rows[inference_rows[row.inference.front()].row].state);
    } else {
      target->AddRows(rows_of(row.training, training_rows));
    }
    if (row.inference.empty()) {
      golden->AddAbsent(RowState::kInput);
    } else {
      golden->AddRows(rows_of(row.inference, inference_rows));
    }
  }
  close(static_cast<uint32_t>(rows.size()));
  return {std::move(target), std::move(golden), std::move(match)};
}

}  // namespace msprobe::server
