#include "agent/torch/graph/graph_record.h"
#include "agent/torch/torch_source.h"

#include <algorithm>
#include <string>

namespace msprobe::capture {

using Field = GraphRecord::Field;

GraphStep::GraphStep(std::shared_ptr<Recorder> recorder) : recorder_(std::move(recorder)) {}

const ProbeTable::Found& GraphStep::Of(ProbeTable* table, int64_t probe) {
  const auto [found, is_new] = found_.try_emplace({table, probe});
  if (is_new) found->second = table->Take(probe);
  return found->second;
}

std::optional<uint64_t> GraphStep::Fill(const std::vector<Field>& fields, bool save, FragmentBuilder& builder) {
  std::optional<uint64_t> runs;
  for (const Field& field : fields) {
    switch (field.kind) {
      case Field::Kind::kKey:
        builder.Key(field.text);
        break;
      case Field::Kind::kList:
        builder.BeginList();
        break;
      case Field::Kind::kDict:
        builder.BeginDict();
        break;
      case Field::Kind::kEnd:
        builder.End();
        break;
      case Field::Kind::kNone:
        builder.None();
        break;
      case Field::Kind::kBoolean:
        builder.Boolean(field.number != 0);
        break;
      case Field::Kind::kInteger:
        builder.Integer(field.number);
        break;
      case Field::Kind::kFloat:
        builder.Float(field.real);
        break;
      case Field::Kind::kString:
        builder.String(field.text);
        break;
      case Field::Kind::kTensor:
        builder.Tensor(recorder_->Read(RefTo(field.tensor), save));
        break;
      case Field::Kind::kProbe: {
        const ProbeTable::Found& found = Of(field.table, field.number);
        if (field.last != nullptr) {
          if (found.runs > 0) *field.last = found.reading;
          if (field.last->dtype == 0) {
            builder.None();
            break;
          }
          TensorReading reading = *field.last;
          reading.requires_grad = field.requires_grad;
          reading.leaf.reused = found.runs == 0;
          builder.Tensor(reading);
          field.last->leaf.payload.reset();
          break;
        }
        runs = std::max(runs.value_or(0), found.runs);
        if (found.runs == 0) {
          builder.None();  // nothing is known of it in this step, its shape neither
          break;
        }
        TensorReading reading = found.reading;
        reading.requires_grad = field.requires_grad;
        builder.Tensor(reading);
        break;
      }
    }
  }
  return runs;
}

void GraphStep::Begin(const GraphRecord& record) {
  ThreadState& thread = ThreadState::Get();
  Open& open = open_[&record];
  const core::ParentId parent = record.parent.empty() ? 0 : recorder_->session().DefineParent(record.parent);
  if (record.is_module) {
    open.record = recorder_->opener().BeginModule(std::make_shared<const std::string>(record.api.name), thread);
  } else {
    open.record = recorder_->opener().BeginApi(record.api, thread);
  }
  open.record.count = record.count;
  open.record.parent = parent;
  open.was_wanted = open.record.wanted;
  if (!open.record.wanted) return;
  recorder_->faults().Contain(open.record, [&] {
    FragmentEmitter::Start(open.record, builder_);
    if (recorder_->rules().WantsInput(core::Direction::kForward))
      open.runs = Fill(record.enter, open.record.save, builder_);
    const core::StackId stack = record.frames.empty() ? 0 : recorder_->session().DefineStack(record.frames);
    recorder_->emitter().Emit(open.record, builder_, core::kEnter, stack);
  });
}

void GraphStep::End(const GraphRecord& record) {
  const auto found = open_.find(&record);
  if (found == open_.end()) return;
  Open& open = found->second;
  recorder_->opener().Recheck(open.record);
  recorder_->faults().Contain(open.record, [&] {
    if (!open.record.wanted && !open.was_wanted) return recorder_->emitter().EmitConstructOnly(open.record);
    FragmentEmitter::Start(open.record, builder_);
    if (open.record.wanted && recorder_->rules().WantsOutput(core::Direction::kForward)) {
      const std::optional<uint64_t> runs = Fill(record.exit, open.record.save, builder_);
      if (runs) open.runs = std::max(open.runs.value_or(0), *runs);
    }
    builder_.Key("captured");
    builder_.Json("true");
    if (open.runs) {
      builder_.Key("runs");
      builder_.Json(std::to_string(*open.runs));
      if (*open.runs == 0) ++missed_;
    }
    recorder_->emitter().Emit(open.record, builder_, open.was_wanted ? core::kExit : core::kEnter | core::kExit);
  });
  if (record.is_module) recorder_->opener().PopModule(ThreadState::Get(), open.record);
  open_.erase(found);
}

}  // namespace msprobe::capture
