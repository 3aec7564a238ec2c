#include "tests/bench/simulated_rank.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace msprobe::bench {
namespace {

uint64_t Next(uint64_t* state) {  // xorshift64
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SimulatedRank>> SimulatedRank::Open(const RecordedStep* step, const Load& load,
                                                                   const core::SessionOptions& options) {
  const uint64_t seed = 0x9E3779B97F4A7C15u * (options.rank.number + 1);
  absl::StatusOr<std::unique_ptr<core::Session>> session = core::Session::Open(options);
  if (!session.ok()) return session.status();
  return std::unique_ptr<SimulatedRank>(new SimulatedRank(step, load, *std::move(session), seed));
}

SimulatedRank::SimulatedRank(const RecordedStep* step, const Load& load, std::unique_ptr<core::Session> session,
                             uint64_t seed)
    : step_(step), load_(load), session_(std::move(session)), state_(seed), content_(load.payload_bytes) {
  for (std::byte& byte : content_) byte = static_cast<std::byte>(Next(&state_));
  uint64_t records = 0;
  for (const RecordedStep::Fragment& fragment : step->fragments()) {
    if ((fragment.flags & core::kEnter) && load.first_records > 0 && ++records > load.first_records) break;
    Prepared& prepared = prepared_.emplace_back();
    prepared.structure = session_->DefineStructure(fragment.structure);
    if (!fragment.stack.empty()) prepared.stack = session_->DefineStack(fragment.stack);
    if (!fragment.parent.empty()) prepared.parent = session_->DefineParent(fragment.parent);
    prepared.strings.assign(fragment.strings.begin(), fragment.strings.end());
    prepared.booleans = std::make_unique<bool[]>(fragment.booleans.size());
    std::copy(fragment.booleans.begin(), fragment.booleans.end(), prepared.booleans.get());
    for (const RecordedStep::Leaf& leaf : fragment.leaves) {
      prepared.shapes.push_back(leaf.shape);
      core::Leaf& prepared_leaf = prepared.leaves.emplace_back();
      prepared_leaf.has_statistics = true;
      prepared_leaf.is_integer = leaf.is_integer;
      prepared_leaf.is_wide = leaf.is_wide;
    }
  }
}

double SimulatedRank::Draw() {
  // Floats, as a float32 tensor has them.
  return static_cast<float>(static_cast<double>(Next(&state_) >> 11) * 0x1p-53 * 4 - 2);
}

void SimulatedRank::Number(core::Leaf* leaf) {
  const double low = Draw(), high = low + 2.5 + Draw();
  leaf->max = static_cast<float>(high);
  leaf->min = low;
  leaf->mean = (low + high) / 2;
  leaf->norm = high * 17;
  leaf->variance = (high - low) * (high - low) / 12;
  leaf->integer_max = static_cast<int64_t>(Next(&state_) >> 48);
  leaf->integer_min = -leaf->integer_max;
  leaf->zero_count = Next(&state_) & 3;
  leaf->crc32 = static_cast<uint32_t>(Next(&state_));
}

void SimulatedRank::AddPayload(core::Leaf* leaf) {
  if (content_.empty() || leaves_seen_++ % load_.payload_every != 0) return;
  leaf->payload = session_->AllocatePayload(content_.size());
  if (leaf->payload == nullptr) return;
  std::memcpy(leaf->payload->bytes().data(), content_.data(), content_.size());
  if (load_.repeated_payloads) return;
  const uint64_t stamp = Next(&state_);
  std::memcpy(leaf->payload->bytes().data(), &stamp, std::min(sizeof(stamp), content_.size()));
}

uint64_t SimulatedRank::EmitStep(uint32_t step) {
  uint64_t leaves = 0, ordinal = 0;
  const int64_t tokens = load_.varying_shapes ? 1 + static_cast<int64_t>(Next(&state_) % 512) : load_.token_dimension;
  for (size_t i = 0; i < prepared_.size(); ++i) {
    const RecordedStep::Fragment& recorded = step_->fragments()[i];
    Prepared& prepared = prepared_[i];
    for (size_t k = 0; k < prepared.leaves.size(); ++k) {
      const RecordedStep::Leaf& shape = recorded.leaves[k];
      if (load_.varying_shapes && !shape.is_parameter) {
        for (size_t dim = 0; dim < shape.shape.size(); ++dim) {
          if (shape.shape[dim] == load_.token_dimension) prepared.shapes[k][dim] = tokens;
        }
      }
      core::Leaf& leaf = prepared.leaves[k];
      leaf.shape = prepared.shapes[k];
      Number(&leaf);
      AddPayload(&leaf);
    }
    session_->Emit({.step = step,
                    .structure = prepared.structure,
                    .count = recorded.count,
                    .ordinal = ++ordinal,
                    .flags = recorded.flags,
                    .stack = prepared.stack,
                    .parent = prepared.parent,
                    .leaves = prepared.leaves,
                    .integers = recorded.integers,
                    .floats = recorded.floats,
                    .booleans = {prepared.booleans.get(), recorded.booleans.size()},
                    .strings = prepared.strings});
    for (core::Leaf& leaf : prepared.leaves) leaf.payload.reset();  // the session's from here
    leaves += prepared.leaves.size();
  }
  session_->EndStep(step);
  return leaves;
}

}  // namespace msprobe::bench
