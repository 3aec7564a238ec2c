#include "tests/chaos/planned_rank.h"

#include <array>
#include <cstring>
#include <random>
#include <vector>

namespace msprobe::server {
namespace {

core::Structure Called() {
  core::Structure structure;
  structure.name = "Torch.op";
  structure.fields.kind = core::NodeKind::kDict;
  core::Node tensor;
  tensor.kind = core::NodeKind::kTensor;
  tensor.key = "output";
  tensor.type = "torch.Tensor";
  tensor.dtype = 2;
  structure.fields.children.push_back(tensor);
  return structure;
}

}  // namespace

PlannedRank::PlannedRank(core::Session* session, uint32_t rank, uint32_t records_a_step)
    : session_(session), rank_(rank), records_(records_a_step), structure_(session->DefineStructure(Called())) {}

int PlannedRank::Value(uint32_t rank, uint32_t step, uint32_t record) {
  return static_cast<int>(rank * 1'000'000 + step % 1000 * 1000 + record % 1000);
}

std::string PlannedRank::Content(uint32_t rank, uint32_t step, uint32_t record) {
  if (record % kPayloadEvery != 0) return {};
  std::minstd_rand random(static_cast<uint32_t>(Value(rank, step, record)) + 1);
  std::vector<uint32_t> numbers(5000 + 5000 * (record % 4));
  for (uint32_t& number : numbers) number = static_cast<uint32_t>(random());
  numbers[0] = step;  // values come again after a thousand steps
  std::string content(4 * numbers.size(), '\0');
  std::memcpy(content.data(), numbers.data(), content.size());
  return content;
}

void PlannedRank::EmitStep(uint32_t step) {
  for (uint32_t record = 0; record < records_; ++record) {
    core::Leaf leaf;
    leaf.has_statistics = true;
    leaf.max = Value(rank_, step, record);
    std::array<int64_t, 1> shape = {4};
    if (const std::string content = Content(rank_, step, record); !content.empty()) {
      shape[0] = static_cast<int64_t>(content.size() / 4);
      leaf.payload = session_->AllocatePayload(content.size());
      if (leaf.payload != nullptr) std::memcpy(leaf.payload->bytes().data(), content.data(), content.size());
    }
    leaf.shape = shape;
    core::Fragment fragment;
    fragment.step = step;
    fragment.structure = structure_;
    fragment.count = record;
    fragment.ordinal = record;
    fragment.flags = core::kEnter | core::kExit;
    fragment.leaves = std::span(&leaf, 1);
    session_->Emit(fragment);
  }
  session_->EndStep(step);
}

}  // namespace msprobe::server
