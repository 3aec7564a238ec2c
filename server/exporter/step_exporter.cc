#include "server/exporter/step_exporter.h"

#include <deque>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "server/exporter/record_json.h"
#include "server/format/cat.h"
#include "server/format/dump/call_order.h"
#include "server/format/dump/frame_text.h"
#include "server/format/json/json_writer.h"
#include "server/format/tensor_file/describe_tensor.h"
#include "server/format/tensor_file/npy_file.h"
#include "server/format/tensor_file/pt_file.h"
#include "server/format/tensor_file/tensor_file_name.h"

namespace msprobe::server {
namespace {

constexpr std::string_view kTensorDirectory = "dump_tensor_data";

struct TensorJob {
  std::string file;  // with suffix
  TensorDescription description;
  v1::PayloadRef payload;
};

// Everything but its name that decides a tensor's file.
std::string ContentOf(const TensorJob& job) {
  const TensorDescription& tensor = job.description;
  std::string content = Cat(job.payload.hash(), " ", static_cast<int>(tensor.dtype), " ", tensor.device, " ",
                            tensor.scale, " ", tensor.zero_point);
  for (int64_t size : tensor.shape) content += Cat(" ", size);
  return content;
}

std::string_view GapReason(v1::Marker::Gap::Reason reason) {
  switch (reason) {
    case v1::Marker::Gap::DROPPED:
      return "dropped by the loss policy";
    case v1::Marker::Gap::STALL_EXPIRED:
      return "dropped after the longest allowed stall";
    case v1::Marker::Gap::SPOOL_FULL:
      return "dropped because the spool was full";
    case v1::Marker::Gap::PAYLOAD_TOO_LARGE:
      return "larger than a payload may be";
    case v1::Marker::Gap::FAULT:
      return "lost to a fault while capturing";
    case v1::Marker::Gap::SERVER_LOST:
      return "lost by a server that had acknowledged them";
    default:
      return "lost";
  }
}

// The contents of payloads that were kept last, by hash.
class RecentContents {
 public:
  static bool IsKept(uint64_t bytes) { return bytes > 0 && bytes <= kBytes / 2; }

  const std::string* Find(const std::string& hash) const {
    const auto found = contents_.find(hash);
    return found == contents_.end() ? nullptr : &found->second;
  }
  void Keep(const std::string& hash, std::string content) {
    bytes_ += content.size();
    contents_[hash] = std::move(content);
    order_.push_back(hash);
    while (bytes_ > kBytes) {
      const auto oldest = contents_.find(order_.front());
      bytes_ -= oldest->second.size();
      contents_.erase(oldest);
      order_.pop_front();
    }
  }

 private:
  static constexpr uint64_t kBytes = uint64_t{32} << 20;

  absl::flat_hash_map<std::string, std::string> contents_;
  std::deque<std::string> order_;
  uint64_t bytes_ = 0;
};

class Export {
 public:
  Export(RecordSource& reader, const StepExportOptions& options, FileSink& sink)
      : reader_(reader),
        options_(options),
        sink_(sink),
        settings_(reader.settings()),
        stacks_(options.stacks == nullptr ? own_stacks_ : *options.stacks) {
    suffix_ = settings_.framework() == "mindspore" ? ".npy" : ".pt";
    debug_ = settings_.level() == "debug";
  }

  absl::StatusOr<StepExportSummary> Run() {
    if (absl::Status status = FindTensors(); !status.ok()) return status;
    for (TensorJob& job : jobs_) {
      if (absl::Status status = WriteTensor(job); !status.ok()) return status;
    }
    if (absl::Status status = WriteDump(); !status.ok()) return status;
    if (HasCalls()) {
      const std::string calls = calls_.Digest();
      if (absl::Status status = WriteStack(calls); !status.ok()) return status;
      if (absl::Status status = WriteConstruct(calls); !status.ok()) return status;
    }
    if (absl::Status status = WriteErrors(); !status.ok()) return status;
    if (absl::Status status = WriteIncomplete(); !status.ok()) return status;
    return std::move(summary_);
  }

 private:
  bool InDump(const v1::Record& record) const {
    return (record.flags() & v1::FRAGMENT_CONSTRUCT_ONLY) == 0 && settings_.task() != "structure" &&
           (record.kind() == v1::RECORD_DEBUG) == debug_;
  }

  bool HasCalls() const { return settings_.stack_and_construct() && !debug_; }

  bool MayHaveTensors() { return !options_.omit_tensors && reader_.may_have_payloads(); }

  // dump.json names the tensors' files, so which there are is found out before.
  absl::Status FindTensors() {
    if (!MayHaveTensors()) return absl::OkStatus();
    return reader_.ForEachRecordWithoutEdges([&](const v1::Record& record, uint64_t) {
      if (!InDump(record)) return absl::OkStatus();
      return ForEachTensor(record, [&](std::span<const std::string> path, const v1::TensorLeaf& leaf) {
        if (!leaf.has_payload()) return absl::OkStatus();
        std::string file = Cat(TensorFileName(record.full_name(), path), suffix_);
        TensorDescription description = DescribeTensor(leaf);
        if (absl::StatusOr<uint64_t> size = ContentSize(description); !size.ok() || *size != leaf.payload().size()) {
          Warn(Cat(file, ": a payload of ", leaf.payload().size(), " bytes does not fit ", leaf.dtype(),
                   " of its shape"));
          missing_.insert(std::move(file));
        } else {
          jobs_.push_back({std::move(file), std::move(description), leaf.payload()});
        }
        return absl::OkStatus();
      });
    });
  }

  // What one module gives out, the module around it gives out, too, and the next one takes: contents that were just
  // read are read again soon.
  absl::Status ReadContent(const v1::PayloadRef& payload,
                           absl::FunctionRef<absl::Status(std::string_view chunk)> visit) {
    if (const std::string* known = recent_.Find(payload.hash())) return visit(*known);
    std::string content;
    const bool keep = RecentContents::IsKept(payload.size());
    absl::Status status = reader_.ReadPayload(payload.hash(), [&](std::string_view chunk) {
      if (keep) content += chunk;
      return visit(chunk);
    });
    if (keep && status.ok()) recent_.Keep(payload.hash(), std::move(content));
    return status;
  }

  absl::Status WriteTensor(TensorJob& job) {
    const std::string path = Cat(kTensorDirectory, "/", job.file);
    auto repeated = sink_.Repeat(path, ContentOf(job));
    if (!repeated.ok()) return repeated.status();
    if (*repeated) {
      ++summary_.tensors;
      summary_.tensor_bytes += job.payload.size();
      return absl::OkStatus();
    }
    std::unique_ptr<TensorFileWriter> writer;
    // The first chunk begins the file, so a payload that never arrived leaves no file.
    auto start = [&]() -> absl::Status {
      if (absl::Status status = sink_.Begin(path); !status.ok()) return status;
      ByteSink to_file = [this](std::string_view bytes) { return sink_.Write(bytes); };
      const std::string stem = job.file.substr(0, job.file.size() - suffix_.size());
      absl::StatusOr<std::unique_ptr<TensorFileWriter>> made =
          suffix_ == ".npy" ? NewNpyFileWriter(job.description, std::move(to_file))
                            : NewPtFileWriter(stem, job.description, std::move(to_file));
      if (!made.ok()) return made.status();
      writer = *std::move(made);
      return absl::OkStatus();
    };
    absl::Status status = ReadContent(job.payload, [&](std::string_view chunk) {
      if (writer == nullptr) {
        if (absl::Status started = start(); !started.ok()) return started;
      }
      return writer->Append(chunk);
    });
    if (absl::IsNotFound(status) && writer == nullptr) {
      Warn(Cat(job.file, ": the tensor's content never arrived"));
      missing_.insert(job.file);
      return absl::OkStatus();
    }
    if (status.ok() && writer == nullptr) status = start();
    if (status.ok()) status = writer->Finish();
    if (!status.ok()) return absl::Status(status.code(), Cat(job.file, ": ", StdView(status.message())));
    ++summary_.tensors;
    summary_.tensor_bytes += job.payload.size();
    return sink_.End();
  }

  absl::Status WriteDump() {
    if (absl::Status status = sink_.Begin(debug_ ? "debug.json" : "dump.json"); !status.ok()) return status;
    std::string data_dir = "null";
    if (!options_.omit_tensors && (settings_.task() == "tensor" || summary_.tensors > 0)) {
      data_dir = Quoted(options_.directory.empty() ? std::string(kTensorDirectory)
                                                   : Cat(options_.directory, "/", kTensorDirectory));
    }
    const std::string framework = settings_.framework().empty() ? "pytorch" : settings_.framework();
    absl::Status status =
        sink_.Write(Cat("{\n\"task\": ", Quoted(settings_.task() == "check" ? "tensor" : settings_.task()),
                        ",\n\"level\": ", Quoted(settings_.level()), ",\n\"framework\": ", Quoted(framework),
                        ",\n\"dump_data_dir\": ", data_dir, ",\n\"data\": {"));
    if (!status.ok()) return status;
    RecordJsonOptions json;
    json.xor_checksum = settings_.summary_mode() == "xor";
    json.crc32 = settings_.summary_mode() == "md5";
    json.extended = options_.extended;
    json.high_precision = settings_.high_precision();
    json.nan_only = settings_.task() == "nan_check";
    const std::string* full_name = nullptr;
    if (MayHaveTensors()) {
      json.data_name = [&](std::span<const std::string> path, const v1::TensorLeaf& leaf) -> std::string {
        if (!leaf.has_payload()) return {};
        std::string file = Cat(TensorFileName(*full_name, path), suffix_);
        return missing_.contains(file) ? std::string() : file;
      };
    }
    JsonWriter writer(options_.strict_json);
    bool first = true;
    status = reader_.ForEachRecordWithoutEdges([&](const v1::Record& record, uint64_t stack_id) {
      if (HasCalls()) calls_.Add(record, stack_id);
      if (!InDump(record)) return absl::OkStatus();
      ++summary_.records;
      full_name = &record.full_name();
      WriteRecord(record, json, writer);
      const std::string_view separator = std::exchange(first, false) ? "\n" : ",\n";
      absl::Status written = sink_.Write(Cat(separator, Quoted(record.full_name()), ": "));
      return written.ok() ? sink_.Write(writer.Take()) : written;
    });
    if (!status.ok()) return status;
    if (status = sink_.Write(first ? "}\n}\n" : "\n}\n}\n"); !status.ok()) return status;
    return sink_.End();
  }

  absl::Status WriteStack(const std::string& calls) {
    const absl::StatusOr<bool> repeated = sink_.Repeat("stack.json", calls);
    if (!repeated.ok() || *repeated) return repeated.status();
    if (absl::Status status = sink_.Begin("stack.json"); !status.ok()) return status;
    uint64_t number = 0;
    for (const CallOrder::StackGroup& group : calls_.StackGroups()) {
      absl::StatusOr<std::string_view> frames = Frames(group.stack_id);
      if (!frames.ok()) {
        Warn(Cat("stack of ", group.names[0], ": ", StdView(frames.status().message())));
        sink_.NeverRepeat("stack.json");
        continue;
      }
      const std::string line =
          Cat(number == 0 ? "{\n\"" : ",\n\"", number, "\": [", ListText(group.names), ",", *frames, "]");
      ++number;
      if (absl::Status status = sink_.Write(line); !status.ok()) return status;
    }
    if (absl::Status status = sink_.Write(number == 0 ? "{}\n" : "\n}\n"); !status.ok()) return status;
    return sink_.End();
  }

  // Valid until the next call.
  absl::StatusOr<std::string_view> Frames(uint64_t stack_id) {
    if (const std::string* known = stacks_.Find(stack_id)) return *known;
    absl::StatusOr<std::vector<v1::Frame>> frames = reader_.Stack(stack_id);
    if (!frames.ok()) return frames.status();
    std::vector<std::string> lines;
    for (const v1::Frame& frame : *frames) lines.push_back(FrameText(frame));
    return stacks_.Keep(stack_id, ListText(lines));
  }

  absl::Status WriteConstruct(const std::string& calls) {
    const absl::StatusOr<bool> repeated = sink_.Repeat("construct.json", calls);
    if (!repeated.ok() || *repeated) return repeated.status();
    if (absl::Status status = sink_.Begin("construct.json"); !status.ok()) return status;
    bool first = true;
    absl::Status status = calls_.ForEachConstructed([&](const CallOrder::Call& call) {
      const std::string_view separator = std::exchange(first, false) ? "{\n" : ",\n";
      return sink_.Write(
          Cat(separator, Quoted(call.full_name), ": ", call.parent.empty() ? "null" : Quoted(call.parent)));
    });
    if (!status.ok()) return status;
    if (status = sink_.Write(first ? "{}\n" : "\n}\n"); !status.ok()) return status;
    return sink_.End();
  }

  absl::Status WriteErrors() {
    std::string text;
    for (const v1::Marker::Fault& fault : reader_.faults()) text += Cat(fault.where(), ": ", fault.message(), "\n");
    for (const v1::Marker::Gap& gap : reader_.gaps()) text += Cat(GapText(gap), "\n");
    for (const std::string& warning : summary_.warnings) text += Cat(warning, "\n");
    return text.empty() ? absl::OkStatus() : WriteText("dump_error_info.log", text);
  }

  absl::Status WriteIncomplete() {
    std::string text;
    if (reader_.state() == v1::StepSummary::OPEN) {
      text += Cat("Step ", reader_.step(), " was still open when it was exported: step() had not been called.\n");
    } else if (reader_.state() == v1::StepSummary::INCOMPLETE) {
      text += Cat("Step ", reader_.step(), " never ended: its process was gone before step() was called.\n");
    }
    for (const v1::Marker::Gap& gap : reader_.gaps()) text += Cat(GapText(gap), "\n");
    return text.empty() ? absl::OkStatus() : WriteText("INCOMPLETE", text);
  }

  std::string GapText(const v1::Marker::Gap& gap) const {
    return Cat("Step ", gap.step(), " lacks ", gap.fragments(), " fragments and ", gap.payloads(),
               " tensors: ", GapReason(gap.reason()), ".");
  }

  absl::Status WriteText(std::string_view path, std::string_view text) {
    if (absl::Status status = sink_.Begin(path); !status.ok()) return status;
    if (absl::Status status = sink_.Write(text); !status.ok()) return status;
    return sink_.End();
  }

  std::string Quoted(std::string_view text) {
    writer_.Text(text);
    return writer_.Take();
  }

  std::string ListText(const auto& texts) {
    writer_.StartArray();
    for (std::string_view text : texts) writer_.Text(text);
    writer_.EndArray();
    return writer_.Take();
  }

  void Warn(std::string warning) { summary_.warnings.push_back(std::move(warning)); }

  RecordSource& reader_;
  const StepExportOptions& options_;
  FileSink& sink_;
  const v1::CaptureSettings settings_;
  std::string suffix_;
  bool debug_ = false;
  CallOrder calls_;
  std::vector<TensorJob> jobs_;
  RecentContents recent_;
  absl::flat_hash_set<std::string> missing_;  // files that could not be written because the payload is missing
  StepExportSummary summary_;
  JsonWriter writer_{false};  // of texts
  StackTexts own_stacks_;
  StackTexts& stacks_;
};

}  // namespace

const std::string* StackTexts::Find(uint64_t stack_id) const {
  const auto found = texts_.find(stack_id);
  return found == texts_.end() ? nullptr : &found->second;
}

const std::string& StackTexts::Keep(uint64_t stack_id, std::string text) {
  bytes_ += text.size();
  if (bytes_ > kMaxBytes) {
    texts_.clear();
    bytes_ = text.size();
  }
  return texts_[stack_id] = std::move(text);
}

std::string StepDirectory(uint32_t step, const v1::Rank& rank) {
  return Cat("step", step, rank.kind() == v1::Rank::RANK ? "/rank" : "/proc", rank.number());
}

absl::StatusOr<bool> HasFiles(RecordSource& reader) {
  if (reader.state() != v1::StepSummary::COMPLETE || !reader.faults().empty() || !reader.gaps().empty()) return true;
  const bool debug = reader.settings().level() == "debug";
  bool is_empty = true;
  const absl::Status status = reader.ForEachRecordHead([&](const v1::Record& record, uint64_t) {
    is_empty = false;
    return (record.kind() == v1::RECORD_DEBUG) == debug ? absl::CancelledError("found") : absl::OkStatus();
  });
  if (!status.ok() && !absl::IsCancelled(status)) return status;
  return is_empty || absl::IsCancelled(status);
}

absl::StatusOr<StepExportSummary> ExportStep(RecordSource& reader, const StepExportOptions& options, FileSink& sink) {
  return Export(reader, options, sink).Run();
}

}  // namespace msprobe::server
