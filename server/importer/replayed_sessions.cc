#include "server/importer/replayed_sessions.h"

#include <xxhash.h>

#include <algorithm>
#include <set>
#include <utility>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

class ReplayedSession : public Session {
 public:
  explicit ReplayedSession(std::shared_ptr<ReplayedSessions::Kept> kept) : kept_(std::move(kept)) {}

  v1::Welcome welcome() const override { return {}; }

  absl::StatusOr<v1::PayloadVerdict> Apply(const v1::Batch& batch) override {
    if (batch.session() != kept_->hello.session()) return absl::InvalidArgumentError("another session's batch");
    if (batch.batch_sequence() != ++kept_->sequence) return absl::OutOfRangeError("a gap in the sequence");
    for (const v1::Definition& definition : batch.definitions()) {
      const std::string& bytes = definition.has_stack() ? definition.stack() : definition.structure();
      if (XXH3_64bits(bytes.data(), bytes.size()) != definition.id()) {
        return absl::InvalidArgumentError("a definition without its hash");
      }
      (definition.has_stack() ? kept_->stacks : kept_->structures)[definition.id()] = bytes;
    }
    v1::PayloadVerdict verdict;
    std::set<std::string> asked;
    for (const v1::Item& item : batch.items()) {
      if (item.has_marker()) {
        ApplyMarker(item.marker());
        continue;
      }
      const v1::Block& block = item.block();
      kept_->step_settings[block.step()] = kept_->settings;
      kept_->steps[block.step()].blocks.push_back(block);
      for (const v1::PayloadRef& payload : block.payload()) {
        if (!asked.insert(payload.hash()).second) continue;
        const bool known = kept_->payloads.contains(payload.hash());
        *(known ? verdict.add_stored() : verdict.add_wanted()) = payload.hash();
      }
    }
    return verdict;
  }

  absl::StatusOr<v1::PayloadVerdict> AddPayload(const v1::PayloadChunk& chunk, std::string_view bytes) override {
    std::string& content = partial_[chunk.hash()];
    if (chunk.offset() != content.size()) return absl::InvalidArgumentError("a chunk out of order");
    content += bytes;
    v1::PayloadVerdict verdict;
    if (!chunk.last()) return verdict;
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(content.data(), content.size()));
    if (std::string(reinterpret_cast<const char*>(canonical.digest), 16) != chunk.hash()) {
      return absl::DataLossError("a payload without its hash");
    }
    kept_->payloads[chunk.hash()] = std::move(content);
    partial_.erase(chunk.hash());
    verdict.add_stored(chunk.hash());
    return verdict;
  }

  absl::StatusOr<size_t> AddWhole(std::span<const WholePayload>, v1::PayloadVerdict&) override { return 0; }

  uint64_t received_through() const override { return kept_->sequence; }
  uint64_t durable_through() const override { return kept_->sequence; }
  absl::Status AwaitDurable(absl::Duration) override { return absl::OkStatus(); }

 private:
  void ApplyMarker(const v1::Marker& marker) {
    if (marker.has_step_end()) {
      kept_->steps[marker.step_end().step()].ended = true;
      kept_->step_settings.emplace(marker.step_end().step(), kept_->settings);
    }
    if (marker.has_settings_changed()) kept_->settings = marker.settings_changed().settings();
    if (marker.has_fault()) kept_->faults.push_back(marker.fault());
    if (marker.has_gap()) kept_->gaps.push_back(marker.gap());
    if (marker.has_session_end()) kept_->ended_clean = marker.session_end().clean();
  }

  const std::shared_ptr<ReplayedSessions::Kept> kept_;
  std::map<std::string, std::string> partial_;
};

class ReplayedStep : public RecordSource {
 public:
  ReplayedStep(std::shared_ptr<ReplayedSessions::Kept> kept, uint32_t step)
      : kept_(std::move(kept)), step_(step), settings_(kept_->step_settings[step]) {}

  const std::string& run() const override { return kept_->hello.run(); }
  uint32_t step() const override { return step_; }
  const v1::Rank& rank() const override { return kept_->hello.rank(); }
  uint32_t epoch() const override { return 0; }
  State state() const override {
    if (kept_->steps[step_].ended) return v1::StepSummary::COMPLETE;
    return kept_->ended_clean ? v1::StepSummary::COMPLETE : v1::StepSummary::INCOMPLETE;
  }
  const v1::CaptureSettings& settings() const override { return settings_; }
  const v1::Hello& hello() const override { return kept_->hello; }

  absl::Status ForEachRecord(
      absl::FunctionRef<absl::Status(const v1::Record& record, uint64_t stack_id)> visit) override {
    RecordAssembler assembler(step_, rank(), [this](uint64_t id) -> absl::StatusOr<SharedStructure> {
      if (!kept_->structures.contains(id)) return absl::NotFoundError("an undefined structure");
      return DecodeStructure(kept_->structures[id]);
    });
    for (const v1::Block& block : kept_->steps[step_].blocks) {
      if (absl::Status status = assembler.Add(std::make_shared<v1::Block>(block)); !status.ok()) return status;
    }
    return assembler.ForEach(visit);
  }

  absl::StatusOr<std::vector<v1::Frame>> Stack(uint64_t stack_id) override {
    v1::Stack stack;
    if (!kept_->stacks.contains(stack_id) || !stack.ParseFromString(kept_->stacks[stack_id])) {
      return absl::NotFoundError("an undefined stack");
    }
    return std::vector<v1::Frame>(stack.frames().begin(), stack.frames().end());
  }

  absl::Status ReadPayload(std::string_view hash,
                           absl::FunctionRef<absl::Status(std::string_view chunk)> visit) override {
    auto it = kept_->payloads.find(std::string(hash));
    if (it == kept_->payloads.end()) return absl::NotFoundError("no such payload");
    constexpr size_t kChunk = 1000;  // small and odd on purpose
    for (size_t begin = 0; begin < it->second.size(); begin += kChunk) {
      const std::string_view chunk = std::string_view(it->second).substr(begin, kChunk);
      if (absl::Status status = visit(chunk); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  std::vector<v1::Marker::Fault> faults() override { return kept_->faults; }
  std::vector<v1::Marker::Gap> gaps() override { return kept_->gaps; }

 private:
  const std::shared_ptr<ReplayedSessions::Kept> kept_;
  const uint32_t step_;
  const v1::CaptureSettings settings_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Session>> ReplayedSessions::OpenSession(const v1::Hello& hello) {
  auto kept = std::make_shared<Kept>();
  kept->hello = hello;
  kept->settings = hello.settings();
  sessions_.push_back(kept);
  return std::make_shared<ReplayedSession>(kept);
}

std::unique_ptr<RecordSource> ReplayedSessions::ReadStep(size_t session, uint32_t step) const {
  return std::make_unique<ReplayedStep>(sessions_[session], step);
}

}  // namespace msprobe::server
