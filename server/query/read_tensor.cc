#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "server/analysis/tensor/tensor_slice.h"
#include "server/exporter/file_sink.h"
#include "server/exporter/step_exporter.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"
#include "server/format/tensor_file/describe_tensor.h"
#include "server/format/tensor_file/npy_file.h"
#include "server/format/tensor_file/pt_file.h"
#include "server/format/tensor_file/tensor_file_name.h"
#include "server/query/query_context.h"
#include "server/shards/shown_steps.h"

namespace msprobe::server {
namespace {

// Longer names are cut and end in a hash, so that the full name of their record is no prefix of them.
constexpr size_t kSurelyWhole = 200;
constexpr size_t kMaxCandidates = 20;

struct Candidate {
  StepKey key;
  v1::TensorLeaf leaf;
  std::unique_ptr<RecordSource> reader;
};

absl::StatusOr<std::optional<v1::TensorLeaf>> FindLeaf(RecordSource& reader, const std::string& name) {
  std::optional<v1::TensorLeaf> found;
  auto wanted = [&](const std::string& full_name, uint32_t) {
    return !found.has_value() && (name.size() > kSurelyWhole || absl::StartsWith(name, full_name) ||
                                  full_name.find('/') != std::string::npos);
  };
  absl::Status status = reader.ForEachRecordNamed(wanted, [&](const v1::Record& record, uint64_t) {
    return ForEachTensor(record, [&](std::span<const std::string> path, const v1::TensorLeaf& leaf) {
      if (!found.has_value() && TensorFileName(record.full_name(), path) == name) found = leaf;
      return absl::OkStatus();
    });
  });
  if (!status.ok()) return status;
  return found;
}

absl::StatusOr<Candidate> FindCandidate(const QueryContext& context, const v1::ReadTensorRequest& request) {
  auto view = RunView::Open(context.shards(), request.run());
  if (!view.ok()) return view.status();
  std::vector<Candidate> candidates;
  size_t looked_at = 0;
  for (const ShownStep& step : view->steps()) {
    if (request.has_step() && step.key.step != request.step()) continue;
    if (request.has_rank() && step.key.rank != RankCode(request.rank())) continue;
    ++looked_at;
    auto reader = view->Records(step);
    if (!reader.ok()) return reader.status();
    auto leaf = FindLeaf(**reader, request.name());
    if (!leaf.ok()) return leaf.status();
    if (!leaf->has_value()) continue;
    if (!candidates.empty()) reader->reset();  // it is ambiguous: nothing will be read
    candidates.push_back({step.key, **std::move(leaf), *std::move(reader)});
    if (candidates.size() > kMaxCandidates) break;
  }
  if (candidates.empty()) {
    return absl::NotFoundError(Cat("run \"", request.run(), "\" has no tensor \"", request.name(), "\" in the ",
                                   looked_at,
                                   " steps looked at; names are those of files in dump_tensor_data without "
                                   "suffix, e.g. Functional.linear.0.forward.input.1"));
  }
  if (candidates.size() > 1) {
    const bool more = candidates.size() > kMaxCandidates;
    if (more) candidates.pop_back();
    std::vector<std::string> places;
    for (const Candidate& candidate : candidates) {
      places.push_back(StepDirectory(candidate.key.step, RankOfCode(candidate.key.rank)));
    }
    return absl::FailedPreconditionError(Cat("\"", request.name(), "\" is in several places, name step and rank: ",
                                             absl::StrJoin(places, ", "), more ? " and more" : ""));
  }
  return std::move(candidates.front());
}

std::vector<DimensionSlice> SlicesOf(const v1::ReadTensorRequest& request) {
  std::vector<DimensionSlice> slices;
  for (const auto& given : request.slices()) {
    DimensionSlice& slice = slices.emplace_back();
    if (given.has_start()) slice.start = given.start();
    if (given.has_stop()) slice.stop = given.stop();
    slice.step = given.step() == 0 ? 1 : given.step();
    slice.index = given.index();
  }
  return slices;
}

// Reads ranges of a payload in order; short ranges of one chunk read it once.
class PayloadWindow {
 public:
  PayloadWindow(RecordSource& reader, std::string hash) : reader_(reader), hash_(std::move(hash)) {}

  absl::Status Read(uint64_t offset, uint64_t size, absl::FunctionRef<absl::Status(std::string_view)> visit) {
    while (size > 0) {
      if (offset < begin_ || offset >= begin_ + chunk_.size()) {
        absl::Status status = reader_.ReadPayloadRange(hash_, offset, 1, [&](uint64_t begin, std::string_view chunk) {
          begin_ = begin;
          chunk_ = chunk;
          return absl::OkStatus();
        });
        if (!status.ok()) return status;
      }
      const std::string_view bytes = std::string_view(chunk_).substr(offset - begin_, size);
      if (absl::Status status = visit(bytes); !status.ok()) return status;
      offset += bytes.size();
      size -= bytes.size();
    }
    return absl::OkStatus();
  }

 private:
  RecordSource& reader_;
  const std::string hash_;
  uint64_t begin_ = 0;
  std::string chunk_;
};

}  // namespace

absl::Status ReadTensor(const QueryContext& context, const v1::ReadTensorRequest& request,
                        const Send<v1::FileChunk>& send) {
  if (request.name().empty()) return absl::InvalidArgumentError("name is empty");
  auto candidate = FindCandidate(context, request);
  if (!candidate.ok()) return candidate.status();
  const v1::TensorLeaf& leaf = candidate->leaf;
  if (!leaf.has_payload()) {
    return absl::NotFoundError(Cat("the content of \"", request.name(), "\" was not captured, only its numbers"));
  }
  TensorDescription description = DescribeTensor(leaf);
  auto size = ContentSize(description);
  if (!size.ok()) return size.status();
  if (*size != leaf.payload().size()) {
    return absl::DataLossError(Cat("the content of \"", request.name(), "\" has ", leaf.payload().size(),
                                   " bytes, its ", "shape and dtype need ", *size));
  }
  std::optional<SlicePlan> plan;
  const uint64_t element = DTypeSize(description.dtype);
  if (request.slices_size() != 0) {
    auto made = SlicePlan::Make(description.shape, SlicesOf(request));
    if (!made.ok()) return made.status();
    plan = *std::move(made);
    description.shape = plan->shape();
  }
  const bool npy = request.format() == v1::ReadTensorRequest::NPY;
  ChunkSink sink(
      "", [&](const v1::FileChunk& chunk) { return send(chunk); }, 1);
  if (absl::Status status = sink.Begin(Cat(request.name(), npy ? ".npy" : ".pt")); !status.ok()) return status;
  ByteSink to_peer = [&](std::string_view bytes) { return sink.Write(bytes); };
  auto writer = npy ? NewNpyFileWriter(std::move(description), std::move(to_peer))
                    : NewPtFileWriter(request.name(), std::move(description), std::move(to_peer));
  if (!writer.ok()) return writer.status();
  absl::Status status;
  if (plan) {
    PayloadWindow window(*candidate->reader, leaf.payload().hash());
    status = plan->ForEachRun([&](uint64_t offset, uint64_t count) {
      return window.Read(offset * element, count * element,
                         [&](std::string_view bytes) { return (*writer)->Append(bytes); });
    });
  } else {
    status = candidate->reader->ReadPayload(leaf.payload().hash(),
                                            [&](std::string_view chunk) { return (*writer)->Append(chunk); });
  }
  if (status.ok()) status = (*writer)->Finish();
  if (status.ok()) status = sink.End();
  return status;
}

}  // namespace msprobe::server
