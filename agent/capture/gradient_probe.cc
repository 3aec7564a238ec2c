#include "agent/capture/gradient_probe.h"

#include <memory>
#include <string>

#include "agent/capture/fragments/fragment_builder.h"

namespace msprobe::capture {
namespace {

void Add(std::string_view key, const TensorReading& reading, FragmentBuilder& builder) {
  builder.Key(key);
  builder.BeginList();
  builder.Tensor(reading);
  builder.End();
}

}  // namespace

GradientProbe::GradientProbe(const core::GradProbeConfig* config, core::Session* session, TensorSource* source,
                             const MemoryReader* memory, Faults* faults)
    : config_(*config),
      session_(*session),
      source_(*source),
      memory_(*memory),
      faults_(*faults),
      structures_(session) {}

void GradientProbe::Look(uint32_t step, std::span<const Gradient> gradients) {
  uint64_t place = 0;
  for (const Gradient& gradient : gradients) Emit(step, ++place, gradient);
  source_.Flush();
}

void GradientProbe::Emit(uint32_t step, uint64_t place, const Gradient& gradient) {
  OpenRecord record;
  record.step = step;
  record.kind = core::RecordKind::kParametersGrad;
  record.direction = core::Direction::kBackward;
  record.name = std::make_shared<const std::string>("Parameter." + std::string(gradient.parameter));
  record.ordinal = place;
  faults_.Contain(record, [&] {
    const GradientReading reading = source_.ReadGradient(gradient.tensor, config_, memory_);
    FragmentBuilder builder;
    builder.Start(*record.name, record.kind, record.direction);
    Add("grad", reading.gradient, builder);
    if (reading.signs.has_value()) Add("signs", *reading.signs, builder);
    if (reading.counts.has_value()) Add("intervals", *reading.counts, builder);
    core::Fragment fragment;
    fragment.step = step;
    fragment.structure = structures_.Of(builder);
    fragment.ordinal = record.ordinal;
    fragment.flags = core::kEnter | core::kExit;
    builder.Fill(fragment);
    session_.Emit(fragment);
  });
}

}  // namespace msprobe::capture
