#include "server/importer/graph_dump_files.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "agent/stats/statistics.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/json/json_writer.h"
#include "server/format/monitor/csv_reader.h"
#include "server/format/tensor_file/npy_file.h"
#include "server/importer/cell_calls.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kMaxNulls = 1024;  // before a tensor of a launch, for those without a file
constexpr std::string_view kOrderFile = "ms_execution_order_graph_";
constexpr std::string_view kTensors = "dump_tensor_data";

std::string StepDirectory(uint32_t step, uint32_t rank) { return Cat("step", step, "/rank", rank); }

// One graph's run in one step of one rank.
struct GraphRun {
  uint32_t rank = 0, step = 0, graph = 0;
  auto operator<=>(const GraphRun&) const = default;  // NOLINT(modernize-use-nullptr): it has no pointer
};

// {Op}.{scope}.{task}.{stream}.{time}.{input|output}.{i}
struct TensorName {
  std::string op, scope;
  uint64_t time = 0;
  bool is_output = false;
  uint32_t index = 0;
};

std::vector<std::string> Split(std::string_view text, char separator) {
  return absl::StrSplit(AbslView(text), separator);
}

template <typename Number>
std::optional<Number> NumberOf(std::string_view text) {
  Number number = 0;
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  if (!digits || !absl::SimpleAtoi(AbslView(text), &number)) return std::nullopt;
  return number;
}

std::optional<uint32_t> NumberBehind(std::string_view prefix, std::string_view text) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return NumberOf<uint32_t>(text.substr(prefix.size()));
}

// Where a file lies: its rank, and behind that the directories and the name.
struct Placed {
  uint32_t rank = 0;
  std::vector<std::string> below;

  bool is_in_run() const { return below.size() == 4 && NumberOf<uint32_t>(below[1]) && NumberOf<uint32_t>(below[2]); }
  GraphRun run() const { return {rank, *NumberOf<uint32_t>(below[2]), *NumberOf<uint32_t>(below[1])}; }
};

std::optional<Placed> PlaceOf(std::string_view path) {
  std::vector<std::string> parts = Split(path, '/');
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (const std::optional<uint32_t> rank = NumberBehind("rank_", parts[i])) {
      return Placed{*rank, {parts.begin() + static_cast<ptrdiff_t>(i) + 1, parts.end()}};
    }
  }
  return std::nullopt;
}

// parts: those of a file's name up to the number of the tensor.
std::optional<TensorName> NameOf(const std::vector<std::string>& parts) {
  const size_t size = parts.size();
  if (size < 7 || parts[0].empty()) return std::nullopt;
  const std::optional<uint32_t> index = NumberOf<uint32_t>(parts[size - 1]);
  const std::optional<uint64_t> time = NumberOf<uint64_t>(parts[size - 3]);
  const bool is_output = parts[size - 2] == "output";
  if (!index || !time || (!is_output && parts[size - 2] != "input")) return std::nullopt;
  TensorName name{.op = parts[0], .scope = {}, .time = *time, .is_output = is_output, .index = *index};
  for (size_t i = 1; i + 5 < size; ++i) name.scope += Cat(i == 1 ? "" : ".", parts[i]);
  return name;
}

// A tensor of a cell that an operator of its graph wrote, and the directory of its step and rank.
std::optional<std::pair<std::string, CellTensorFile>> CellTensorAt(const std::string& path) {
  const size_t file = path.rfind('/');
  if (file == std::string::npos || !path.substr(0, file).ends_with(kTensors)) return std::nullopt;
  const std::optional<CellTensorFile> tensor = CellTensorFile::Parse(std::string_view(path).substr(file + 1));
  if (!tensor || file < kTensors.size() + 1) return std::nullopt;
  return std::pair(path.substr(0, file - kTensors.size() - 1), *tensor);
}

// The same of such an operator's row in statistic.csv.
std::optional<CellTensorName> CellTensorOf(std::string_view op_name) {
  const size_t tensors = op_name.find(kTensors);
  if (tensors == std::string_view::npos || op_name.size() <= tensors + kTensors.size()) return std::nullopt;
  std::string name(op_name.substr(tensors + kTensors.size() + 1));  // behind '/', in older versions '_'
  name.resize(std::min(name.find('|'), name.size()));
  std::replace(name.begin(), name.end(), '-', '.');
  return CellTensorName::Parse(name);
}

absl::StatusOr<std::string> ReadText(FileSource& files, const std::string& path) {
  absl::StatusOr<std::unique_ptr<ByteSource>> bytes = files.Open(path);
  if (!bytes.ok()) return bytes.status();
  std::string text((*bytes)->size(), '\0');
  if (absl::Status status = (*bytes)->ReadAt(0, text); !status.ok()) return status;
  return text;
}

// Collects what the files of a dump say, then arranges it.
class Collection {
 public:
  explicit Collection(FileSource& files) : files_(files) {}

  // False: it is no file of a dump.
  absl::StatusOr<bool> Take(const std::string& path) {
    if (const auto cell = CellTensorAt(path)) {
      const auto& [directory, file] = *cell;
      cells_[directory].Add(file.name, file.id, {.path = path, .is_bfloat16 = IsBFloat16(file.dtype), .row = {}});
      return true;
    }
    const std::optional<Placed> placed = PlaceOf(path);
    if (!placed) return false;
    const std::string& file = placed->below.back();
    if (placed->below.size() == 2 && placed->below[0] == "execution_order") {
      const std::string_view stem = std::string_view(file).substr(0, file.find('.'));
      const std::optional<uint32_t> graph = NumberBehind(kOrderFile, stem);
      if (!graph) return true;  // the order of graphs, which their numbers have too
      const absl::Status status = TakeOrder(path, order_[{placed->rank, *graph}]);
      if (!status.ok()) return status;
      return true;
    }
    if (!placed->is_in_run()) return false;
    if (file == "statistic.csv") {
      const absl::Status status = TakeStatistics(path, placed->run());
      if (!status.ok()) return status;
      return true;
    }
    std::vector<std::string> parts = Split(file, '.');
    if (parts.size() < 3 || parts.back() != "npy") return false;
    const std::string dtype = parts[parts.size() - 2];
    parts.resize(parts.size() - 3);
    const std::optional<TensorName> name = NameOf(parts);
    if (!name) return false;
    DumpedTensor& tensor = At(placed->run(), *name);
    tensor.path = path;
    tensor.is_bfloat16 = IsBFloat16(dtype);
    return true;
  }

  // By directory of a step and rank.
  std::map<std::string, std::vector<DumpedCall>> Arranged() {
    std::map<std::string, std::vector<DumpedCall>> arranged = ArrangedKernels();
    for (const auto& [directory, cells] : cells_) {
      std::vector<DumpedCall> calls = cells.Arranged();
      std::move(calls.begin(), calls.end(), std::back_inserter(arranged[directory]));
    }
    return arranged;
  }

 private:
  using Slot = std::pair<bool, uint32_t>;  // whether an output, and its number

  static bool IsBFloat16(std::string_view dtype) {
    return absl::EqualsIgnoreCase(AbslView(dtype), "bf16") || absl::EqualsIgnoreCase(AbslView(dtype), "bfloat16");
  }

  std::map<std::string, std::vector<DumpedCall>> ArrangedKernels() {
    struct Timed {
      std::tuple<uint32_t, int, size_t, uint64_t> place;  // graph, kind, position, time
      std::string name;
      DumpedCall launch;
    };
    std::map<std::pair<uint32_t, uint32_t>, std::vector<Timed>> runs;
    for (auto& [kernel, slots] : kernels_) {
      const auto& [run, name] = kernel;
      std::vector<Timed> launches;
      for (auto& [slot, tensors] : slots) {
        size_t n = 0;
        for (auto& [time, tensor] : tensors) {
          if (n == launches.size()) launches.push_back({.place = {run.graph, 0, 0, time}, .name = name, .launch = {}});
          uint64_t& first = std::get<3>(launches[n].place);
          first = std::min(first, time);
          DumpedCall& launch = launches[n++].launch;
          (slot.first ? launch.outputs : launch.inputs)[slot.second] = std::move(tensor);
        }
      }
      const std::optional<size_t> position = PositionOf(run, name);
      for (Timed& timed : launches) {
        std::get<1>(timed.place) = name.starts_with("Parameter.") ? 0 : position ? 1 : 2;
        std::get<2>(timed.place) = position.value_or(0);
        runs[{run.rank, run.step}].push_back(std::move(timed));
      }
    }
    std::map<std::string, std::vector<DumpedCall>> arranged;
    for (auto& [place, launches] : runs) {
      std::sort(launches.begin(), launches.end(), [](const Timed& left, const Timed& right) {
        return std::tie(left.place, left.name) < std::tie(right.place, right.name);
      });
      std::map<std::string, uint32_t> counts;
      for (Timed& timed : launches) {
        timed.launch.name = Cat("Kernel.", timed.name, ".", counts[timed.name]++, ".forward");
        arranged[StepDirectory(place.second, place.first)].push_back(std::move(timed.launch));
      }
    }
    return arranged;
  }

  DumpedTensor& At(const GraphRun& run, const TensorName& name) {
    return kernels_[{run, Cat(name.op, ".", name.scope)}][{name.is_output, name.index}][name.time];
  }

  // Rows: the kernel's full name with '/' between its parts, then others.
  absl::Status TakeOrder(const std::string& path, std::map<std::string, size_t>& order) {
    absl::StatusOr<std::string> text = ReadText(files_, path);
    if (!text.ok()) return text.status();
    CsvReader reader = CsvReader::Of(*std::move(text), path);
    std::vector<std::string_view> cells;
    while (true) {
      const absl::StatusOr<bool> more = reader.Next(cells);
      if (!more.ok()) return more.status();
      if (!*more) return absl::OkStatus();
      std::string scope(cells[0]);
      std::replace(scope.begin(), scope.end(), '/', '_');
      order.emplace(std::move(scope), order.size());
    }
  }

  std::optional<size_t> PositionOf(const GraphRun& run, const std::string& name) const {
    const auto order = order_.find({run.rank, run.graph});
    if (order == order_.end()) return std::nullopt;
    const auto position = order->second.find(name.substr(name.find('.') + 1));
    if (position == order->second.end()) return std::nullopt;
    return position->second;
  }

  absl::Status TakeStatistics(const std::string& path, const GraphRun& run) {
    absl::StatusOr<std::string> text = ReadText(files_, path);
    if (!text.ok()) return text.status();
    CsvReader reader = CsvReader::Of(*std::move(text), path);
    std::map<std::string, size_t> columns;
    std::vector<std::string_view> cells;
    while (true) {
      const absl::StatusOr<bool> more = reader.Next(cells);
      if (!more.ok()) return more.status();
      if (!*more) return absl::OkStatus();
      if (columns.empty()) {
        for (size_t i = 0; i < cells.size(); ++i) columns.emplace(cells[i], i);
        continue;
      }
      const auto cell = [&](const char* column) {
        const auto found = columns.find(column);
        return found == columns.end() || found->second >= cells.size() ? std::string()
                                                                       : std::string(cells[found->second]);
      };
      const std::optional<TensorName> name = NameOf({cell("Op Type"), cell("Op Name"), cell("Task ID"),
                                                     cell("Stream ID"), cell("Timestamp"), cell("IO"), cell("Slot")});
      if (!name) {
        return absl::InvalidArgumentError(Cat(path, ": line ", reader.line(), ": columns Op Type, Op Name, Task ID, ",
                                              "Stream ID, Timestamp, IO and Slot are expected to name a tensor"));
      }
      DumpedTensor::Row row = {cell("Data Type"), cell("Shape"),     cell("Max Value"),
                               cell("Min Value"), cell("Avg Value"), cell("L2Norm Value")};
      const std::optional<CellTensorName> of_cell = CellTensorOf(cell("Op Name"));
      if (!of_cell) {
        At(run, *name).row = std::move(row);
      } else if (name->index > 0) {  // before the tensor stands its file's name
        cells_[StepDirectory(run.step, run.rank)].Add(*of_cell, name->time, {.path = {}, .row = std::move(row)});
      }
    }
  }

  FileSource& files_;
  std::map<std::pair<uint32_t, uint32_t>, std::map<std::string, size_t>> order_;  // of rank and graph: by scope
  std::map<std::string, CellCalls> cells_;                                        // by directory of a step and rank
  std::map<std::pair<GraphRun, std::string>, std::map<Slot, std::map<uint64_t, DumpedTensor>>> kernels_;  // by time
};

struct Numbers {
  std::string dtype;  // in MindSpore's words
  std::vector<int64_t> shape;
  stats::Statistics statistics;
};

// "torch.float32" -> "Float32", "torch.bfloat16" -> "BFloat16", "torch.uint8" -> "UInt8".
std::string MindsporeName(v1::DType dtype) {
  std::string name(TorchDTypeName(dtype).substr(6));
  for (const char* lead : {"bf", "ui"}) {
    if (name.starts_with(lead)) name[1] = static_cast<char>(name[1] - 'a' + 'A');
  }
  name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name;
}

absl::StatusOr<Numbers> NumbersOfFile(FileSource& files, const DumpedTensor& tensor) {
  absl::StatusOr<std::unique_ptr<ByteSource>> bytes = files.Open(tensor.path);
  if (!bytes.ok()) return bytes.status();
  const auto at = [&](const absl::Status& status) {
    return absl::Status(status.code(), Cat(tensor.path, ": ", StdView(status.message())));
  };
  absl::StatusOr<NpyFile> file = NpyFile::Open(**bytes);
  if (!file.ok()) return at(file.status());
  const TensorDescription& description = file->description();
  std::string content;
  const absl::Status status = file->Read([&](std::string_view chunk) {
    content += chunk;
    return absl::OkStatus();
  });
  if (!status.ok()) return at(status);
  std::vector<int64_t> strides(description.shape.size(), 1);
  for (size_t i = strides.size(); i > 1; --i) strides[i - 2] = strides[i - 1] * description.shape[i - 1];
  Numbers numbers;
  numbers.dtype = tensor.is_bfloat16 ? "BFloat16" : MindsporeName(description.dtype);
  numbers.shape = description.shape;
  numbers.statistics = stats::ComputeStatistics({.data = content.data(),
                                                 .dtype = static_cast<stats::DType>(description.dtype),
                                                 .sizes = description.shape,
                                                 .strides = strides});
  return numbers;
}

void WriteNumbers(const stats::Statistics& statistics, JsonWriter& json) {
  for (const auto& [name, real, whole] : {std::tuple("Max", statistics.max, statistics.integer_max),
                                          std::tuple("Min", statistics.min, statistics.integer_min)}) {
    json.Name(name);
    if (statistics.is_integer) {
      json.Int64(whole);
    } else {
      json.Double(real);
    }
  }
  json.Name("Mean");
  json.Double(statistics.mean);
  json.Name("Norm");
  json.Double(statistics.norm);
}

// A cell of statistic.csv; what is no number becomes null.
void WriteCell(const char* name, const std::string& cell, JsonWriter& json) {
  double value = 0;
  json.Name(name);
  if (absl::SimpleAtod(cell, &value)) {
    json.Double(value);
  } else {
    json.Null();
  }
}

// The sizes in "(2,3)", however they are set apart.
std::vector<int64_t> ShapeOf(std::string_view text) {
  std::vector<int64_t> shape;
  while (!text.empty()) {
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    if (const std::optional<int64_t> size = NumberOf<int64_t>(text.substr(0, digits))) shape.push_back(*size);
    text.remove_prefix(std::max<size_t>(digits, 1));
  }
  return shape;
}

absl::Status WriteTensor(FileSource& files, const DumpedTensor& tensor, const std::string& data_name,
                         JsonWriter& json) {
  json.StartObject();
  json.Name("type");
  json.Text("mindspore.Tensor");
  const DumpedTensor::Row& row = tensor.row;
  std::string dtype = row.dtype;
  std::vector<int64_t> shape;
  std::optional<Numbers> numbers;
  if (!tensor.path.empty()) {
    absl::StatusOr<Numbers> read = NumbersOfFile(files, tensor);
    if (!read.ok()) return read.status();
    numbers = *std::move(read);
    dtype = numbers->dtype;
    shape = numbers->shape;
  } else {
    shape = ShapeOf(row.shape);
    const v1::DType known = DTypeOfName(dtype);
    if (known != v1::DTYPE_OTHER) dtype = MindsporeName(known);
  }
  json.Name("dtype");
  json.Text(dtype);
  json.Name("shape");
  json.StartArray();
  for (int64_t size : shape) json.Int64(size);
  json.EndArray();
  if (!row.max.empty() || !numbers) {
    WriteCell("Max", row.max, json);
    WriteCell("Min", row.min, json);
    WriteCell("Mean", row.mean, json);
    WriteCell("Norm", row.norm, json);
  } else if (numbers->statistics.computed) {
    WriteNumbers(numbers->statistics, json);
  }
  if (!tensor.path.empty()) {
    json.Name("data_name");
    json.Text(data_name);
  }
  json.EndObject();
  return absl::OkStatus();
}

std::string DataName(const DumpedCall& call, std::string_view side, uint32_t index) {
  return Cat(call.name, ".", side, ".", index, ".npy");
}

bool IsOfCell(const DumpedCall& call) { return call.name.starts_with("Cell."); }

// construct.json of the cells; empty where there are none.
std::string ConstructOf(const std::vector<DumpedCall>& calls) {
  if (std::none_of(calls.begin(), calls.end(), IsOfCell)) return {};
  JsonWriter json(false);
  json.StartObject();
  for (const DumpedCall& call : calls) {
    if (!IsOfCell(call)) continue;
    json.Name(call.name);
    if (call.parent.empty()) {
      json.Null();
    } else {
      json.Text(call.parent);
    }
  }
  json.EndObject();
  return json.Take();
}

}  // namespace

bool GraphDumpFiles::Knows(const std::vector<std::string>& paths) {
  return std::any_of(paths.begin(), paths.end(), [](const std::string& path) {
    const std::optional<Placed> placed = PlaceOf(path);
    return (placed && placed->is_in_run()) || CellTensorAt(path);
  });
}

absl::StatusOr<std::unique_ptr<GraphDumpFiles>> GraphDumpFiles::Read(FileSource& files) {
  auto read = std::unique_ptr<GraphDumpFiles>(new GraphDumpFiles(files));
  Collection collection(files);
  for (const std::string& path : files.paths()) {
    const absl::StatusOr<bool> taken = collection.Take(path);
    if (!taken.ok()) return taken.status();
    if (!*taken) read->others_.push_back(path);
  }
  for (auto& [directory, calls] : collection.Arranged()) {
    for (const DumpedCall& call : calls) {
      for (const auto& [side, tensors] : {std::pair("input", &call.inputs), std::pair("output", &call.outputs)}) {
        for (const auto& [index, tensor] : *tensors) {
          if (tensor.path.empty()) continue;
          read->tensors_[Cat(directory, "/", kTensors, "/", DataName(call, side, index))] = tensor.path;
        }
      }
    }
    if (std::string construct = ConstructOf(calls); !construct.empty()) {
      read->constructs_[Cat(directory, "/construct.json")] = std::move(construct);
    }
    read->steps_[Cat(directory, "/dump.json")].calls = std::move(calls);
  }
  return read;
}

std::vector<std::string> GraphDumpFiles::paths() const {
  std::vector<std::string> paths = others_;
  for (const auto& [path, step] : steps_) paths.push_back(path);
  for (const auto& [path, text] : constructs_) paths.push_back(path);
  for (const auto& [path, source] : tensors_) paths.push_back(path);
  std::sort(paths.begin(), paths.end());
  return paths;
}

absl::StatusOr<std::unique_ptr<ByteSource>> GraphDumpFiles::Open(std::string_view path) {
  const std::string key(path);
  if (const auto tensor = tensors_.find(key); tensor != tensors_.end()) return files_.Open(tensor->second);
  if (const auto text = constructs_.find(key); text != constructs_.end()) {
    return std::make_unique<MemoryBytes>(text->second);
  }
  const auto step = steps_.find(key);
  if (step == steps_.end()) return files_.Open(path);
  if (step->second.text.empty()) {
    absl::StatusOr<std::string> text = TextOf(step->second);
    if (!text.ok()) return text.status();
    step->second.text = *std::move(text);
  }
  return std::make_unique<MemoryBytes>(step->second.text);
}

absl::StatusOr<std::string> GraphDumpFiles::TextOf(const Step& step) {
  const bool with_files = std::any_of(step.calls.begin(), step.calls.end(), [](const DumpedCall& call) {
    const auto has_file = [](const auto& tensor) { return !tensor.second.path.empty(); };
    return std::any_of(call.inputs.begin(), call.inputs.end(), has_file) ||
           std::any_of(call.outputs.begin(), call.outputs.end(), has_file);
  });
  const bool has_kernels = !std::all_of(step.calls.begin(), step.calls.end(), IsOfCell);
  JsonWriter json(false);
  json.StartObject();
  json.Name("task");
  json.Text(with_files ? "tensor" : "statistics");
  json.Name("level");
  json.Text(has_kernels ? "L2" : "L0");
  json.Name("framework");
  json.Text("mindspore");
  json.Name("data");
  json.StartObject();
  for (const DumpedCall& call : step.calls) {
    json.Name(call.name);
    json.StartObject();
    for (const auto& [key, side, tensors] :
         {std::tuple(call.is_backward ? "input" : "input_args", "input", &call.inputs),
          std::tuple("output", "output", &call.outputs)}) {
      json.Name(key);
      json.StartArray();
      uint32_t next = 0;
      for (const auto& [index, tensor] : *tensors) {
        for (; next < index && next < kMaxNulls; ++next) json.Null();
        if (absl::Status status = WriteTensor(files_, tensor, DataName(call, side, index), json); !status.ok()) {
          return status;
        }
        ++next;
      }
      json.EndArray();
    }
    json.EndObject();
  }
  json.EndObject();
  json.EndObject();
  return json.Take();
}

}  // namespace msprobe::server
