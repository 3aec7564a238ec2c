#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "server/analysis/table/python_text.h"
#include "server/exporter/gradient_files.h"
#include "server/format/cat.h"
#include "server/format/tensor_file/npy_file.h"
#include "server/stored/captured_section.h"
#include "server/stored/gradient_signs.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kLineEnd = "\r\n";

struct Asked {
  std::string level = "L1";
  std::vector<std::string> bounds = {"-1", "0", "1"};  // as Python shows what config.json has
};

Asked AskedBy(const v1::CaptureSettings& settings) {
  Asked asked;
  const rapidjson::Document section = CapturedSection(settings, "grad_probe");
  if (section.HasMember("grad_level") && section["grad_level"].IsString()) {
    asked.level = section["grad_level"].GetString();
  }
  if (section.HasMember("bounds") && section["bounds"].IsArray()) {
    constexpr rapidjson::SizeType kMostBounds = 4096;  // the agent takes no more
    const rapidjson::Value& bounds = section["bounds"];
    const auto is_number = [](const rapidjson::Value& each) { return each.IsNumber(); };
    if (bounds.Size() > kMostBounds || !std::all_of(bounds.Begin(), bounds.End(), is_number)) return asked;
    asked.bounds.clear();
    for (const rapidjson::Value& bound : bounds.GetArray()) {
      asked.bounds.push_back(bound.IsInt64() ? std::to_string(bound.GetInt64()) : PythonNumber(bound.GetDouble()));
    }
  }
  return asked;
}

std::string Quoted(std::string_view cell) {
  if (cell.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(cell);
  return Cat("\"", absl::StrReplaceAll(absl::string_view(cell.data(), cell.size()), {{"\"", "\"\""}}), "\"");
}

void AppendLine(const std::vector<std::string>& cells, std::string& csv) {
  for (size_t i = 0; i < cells.size(); ++i) csv += Cat(i == 0 ? "" : ",", Quoted(cells[i]));
  csv += kLineEnd;
}

std::vector<std::string> HeaderOf(const Asked& asked) {
  std::vector<std::string> header = {"param_name"};
  if (asked.level == "L0") header.emplace_back("MD5");
  if (asked.level == "L2") {
    for (size_t i = 0; i < asked.bounds.size(); ++i) {
      header.push_back(i == 0 ? Cat("(-inf, ", asked.bounds[0], "]")
                              : Cat("(", asked.bounds[i - 1], ", ", asked.bounds[i], "]"));
    }
    if (!asked.bounds.empty()) header.push_back(Cat("(", asked.bounds.back(), ", inf)"));
    header.emplace_back("=0");
  }
  header.insert(header.end(), {"max", "min", "norm", "shape"});
  return header;
}

// As a float32 that Python shows.
std::string Shown(bool known, double value) {
  return known ? PythonNumber(static_cast<double>(static_cast<float>(value))) : "";
}

std::string Eight(uint32_t crc32) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text(8, '0');
  for (size_t i = 8; i-- > 0; crc32 >>= 4) text[i] = kDigits[crc32 & 15];
  return text;
}

// A name of a parameter as the name of a file.
std::string FileOf(const std::string& parameter) { return absl::StrReplaceAll(parameter, {{"/", "_"}}); }

class GradientExport : public StepsExport {
 public:
  GradientExport(const ExportOptions& options, FileSink& sink) : options_(options), sink_(sink) {}

  absl::Status Add(const ExportedStep& step, const ExportedStep& golden) override {
    if (!golden.empty()) {
      return absl::InvalidArgumentError("gradients are exported of one side: leave out the golden one");
    }
    RecordSource& records = *step.records;
    if (records.settings().task() != kGradProbe) {
      return absl::InvalidArgumentError(Cat("step ", records.step(), " was captured with task ",
                                            records.settings().task(), ", and the format grad_probe is for that task"));
    }
    auto gradients = GradientsIn(records);
    if (!gradients.ok()) return gradients.status();
    const Asked asked = AskedBy(records.settings());
    std::string csv(kByteOrderMark);
    AppendLine(HeaderOf(asked), csv);
    for (const GradientRecord& gradient : *gradients) {
      auto cells = CellsOf(records, asked, gradient);
      if (!cells.ok()) return cells.status();
      AppendLine(*cells, csv);
    }
    for (const GradientRecord& gradient : *gradients) {
      if (absl::Status status = WriteSigns(records, gradient); !status.ok()) return status;
    }
    if (absl::Status status = sink_.Begin(GradientSummaryPath(records.step(), records.rank())); !status.ok()) {
      return status;
    }
    if (absl::Status status = sink_.Write(csv); !status.ok()) return status;
    return sink_.End();
  }

 private:
  absl::StatusOr<std::vector<std::string>> CellsOf(RecordSource& records, const Asked& asked,
                                                   const GradientRecord& gradient) {
    std::vector<std::string> cells = {gradient.parameter};
    const v1::TensorLeaf& leaf = gradient.gradient;
    if (asked.level == "L0") cells.push_back(leaf.has_crc32() ? Eight(leaf.crc32()) : "");
    if (asked.level == "L2") {
      const size_t intervals = asked.bounds.empty() ? 0 : asked.bounds.size() + 1;
      std::vector<int64_t> counts(asked.bounds.size() + 2);
      const uint64_t size = counts.size() * sizeof(int64_t);
      auto bytes = gradient.intervals.has_value() ? ReadWhole(records, *gradient.intervals, size)
                                                  : absl::StatusOr<std::string>(absl::NotFoundError("it has none"));
      if (bytes.ok()) std::memcpy(counts.data(), bytes->data(), size);
      if (!bytes.ok() && bytes.status().code() != absl::StatusCode::kNotFound) return bytes.status();
      if (!bytes.ok()) Miss(records, gradient, "intervals", bytes.status());
      const auto elements = static_cast<double>(std::max<uint64_t>(1, gradient.elements()));
      const auto share = [&](size_t i) {
        if (gradient.elements() == 0) return std::string("0");
        return bytes.ok() ? PythonNumber(static_cast<double>(counts[i]) / elements) : std::string();
      };
      for (size_t i = 0; i < intervals; ++i) cells.push_back(share(i));
      cells.push_back(share(counts.size() - 1));
    }
    cells.push_back(Shown(leaf.has_max(), leaf.max().real()));
    cells.push_back(Shown(leaf.has_min(), leaf.min().real()));
    cells.push_back(Shown(leaf.has_norm(), leaf.norm()));
    cells.push_back(Cat("[", absl::StrJoin(leaf.shape(), ", "), "]"));
    return cells;
  }

  // {parameter}.npy: bools in the gradient's shape.
  absl::Status WriteSigns(RecordSource& records, const GradientRecord& gradient) {
    if (!gradient.signs.has_value()) return absl::OkStatus();
    const uint64_t elements = gradient.elements();
    auto bits = ReadWhole(records, *gradient.signs, gradient.sign_bytes());
    if (bits.status().code() == absl::StatusCode::kNotFound) {
      Miss(records, gradient, "signs", bits.status());
      return absl::OkStatus();
    }
    if (!bits.ok()) return bits.status();
    const std::string path =
        Cat(GradientDirectory(records.rank()), "/step", records.step(), "/", FileOf(gradient.parameter), ".npy");
    if (absl::Status status = sink_.Begin(path); !status.ok()) return status;
    TensorDescription description;
    description.dtype = v1::DTYPE_BOOL;
    description.shape.assign(gradient.gradient.shape().begin(), gradient.gradient.shape().end());
    auto writer =
        NewNpyFileWriter(std::move(description), [this](std::string_view content) { return sink_.Write(content); });
    if (!writer.ok()) return writer.status();
    constexpr uint64_t kChunk = 1 << 16;
    std::string bools;
    for (uint64_t first = 0; first < elements; first += kChunk) {
      bools.resize(std::min(kChunk, elements - first));
      for (uint64_t i = 0; i < bools.size(); ++i) {
        const auto byte = static_cast<uint8_t>((*bits)[(first + i) / 8]);
        bools[i] = static_cast<char>((byte >> ((first + i) % 8)) & 1);
      }
      if (absl::Status status = (*writer)->Append(bools); !status.ok()) return status;
    }
    if (absl::Status status = (*writer)->Finish(); !status.ok()) return status;
    return sink_.End();
  }

  void Miss(const RecordSource& records, const GradientRecord& gradient, std::string_view what,
            const absl::Status& why) const {
    options_.Warn(Cat("step ", records.step(), ": ", gradient.parameter, " is without ", what, ": ", why.message()));
  }

  const ExportOptions options_;
  FileSink& sink_;
};

}  // namespace

std::string GradientDirectory(const v1::Rank& rank) {
  return Cat("rank", rank.kind() == v1::Rank::RANK ? rank.number() : 0);
}

std::string GradientSummaryPath(uint32_t step, const v1::Rank& rank) {
  return Cat(GradientDirectory(rank), "/grad_summary_", step, ".csv");
}

absl::StatusOr<std::unique_ptr<StepsExport>> BeginGradients(const ExportOptions& options, FileSink& sink) {
  if (absl::Status status = RefuseDumpOptions(options, kGradProbe); !status.ok()) return status;
  return std::make_unique<GradientExport>(options, sink);
}

}  // namespace msprobe::server
