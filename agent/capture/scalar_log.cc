#include "agent/capture/scalar_log.h"

#include <algorithm>
#include <memory>
#include <string>

#include "agent/capture/fragments/fragment_builder.h"

namespace msprobe::capture {
namespace {

constexpr std::string_view kName = "scalars";

}  // namespace

ScalarLog::ScalarLog(core::Session* session, TensorSource* source, Faults* faults)
    : session_(*session), source_(*source), faults_(*faults), memory_({}, session), structures_(session) {}

void ScalarLog::Log(uint32_t step, std::span<const Scalar> scalars) {
  OpenRecord record;
  record.step = step;
  faults_.Contain(record, [&] {
    FragmentBuilder builder;
    builder.Start(kName, core::RecordKind::kScalars, core::Direction::kForward);
    for (const Scalar& scalar : scalars) {
      builder.Key(scalar.name);
      if (scalar.read == nullptr) {
        builder.Float(scalar.value);
      } else {
        builder.Tensor(scalar.read(memory_));
      }
    }
    core::Fragment fragment;
    fragment.step = step;
    fragment.structure = structures_.Of(builder);
    fragment.flags = core::kEnter | core::kExit;
    builder.Fill(fragment);
    const bool waits = std::any_of(fragment.leaves.begin(), fragment.leaves.end(),
                                   [](const core::Leaf& leaf) { return leaf.pending != nullptr; });
    session_.Emit(fragment);
    if (waits) source_.Flush();
  });
}

}  // namespace msprobe::capture
