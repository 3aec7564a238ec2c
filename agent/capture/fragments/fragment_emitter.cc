#include "agent/capture/fragments/fragment_emitter.h"

#include "agent/core/str_cat.h"

namespace msprobe::capture {

void FragmentEmitter::Start(const OpenRecord& record, FragmentBuilder& builder) {
  builder.Start(*record.name, record.kind, record.direction, record.pass);
}

void FragmentEmitter::Emit(OpenRecord& record, FragmentBuilder& builder, uint32_t flags, core::StackId stack) {
  if (record.step != step_.number()) return;
  const bool ends = (flags & core::kExit) != 0 && !builder.empty();
  const bool whole = (flags & core::kEnter) != 0;  // its begin was not wanted: a scope opened since
  const bool moves = ends && (whole ? record.kind == core::RecordKind::kModule
                                    : record.kind != core::RecordKind::kApi || !record.entered);
  if (moves) {
    record.ordinal = opener_.NextOrdinal();
    if (!whole) flags |= core::kUpdate;
  }
  if ((flags & core::kEnter) != 0 && !builder.empty()) record.entered = true;
  if ((flags & core::kConstructOnly) == 0) step_.NoteRecord();
  if (diff_check_ != nullptr && record.save) CompareBeforeEmit(record, builder, flags);
  EmitFragment(record, builder, flags, stack);
}

void FragmentEmitter::CompareBeforeEmit(OpenRecord& record, FragmentBuilder& builder, uint32_t flags) {
  DiffCheck::Verdict verdict =
      diff_check_->Check(record.FullName(), (flags & core::kEnter) != 0, (flags & core::kExit) != 0, builder);
  if (!verdict.differs) return;
  log_.Warning(core::Cat("step ", record.step, ": ", verdict.message));
  if (verdict.held != nullptr) EmitFragment(record, *verdict.held, core::kEnter, 0);
}

void FragmentEmitter::EmitFragment(const OpenRecord& record, FragmentBuilder& builder, uint32_t flags,
                                   core::StackId stack) {
  if (!record.in_construct) flags |= core::kNoConstruct;
  if (record.recompute) flags |= core::kRecompute;
  if (record.touched) flags |= core::kTouched;
  core::Fragment fragment;
  fragment.step = record.step;
  fragment.token = record.token;
  fragment.structure = structures_.Of(builder);
  fragment.count = record.count;
  fragment.ordinal = record.ordinal;
  fragment.flags = flags;
  fragment.stack = stack;
  fragment.parent = record.parent;
  fragment.thread = record.thread;
  builder.Fill(fragment);
  session_.Emit(fragment);
  if (producers_ == nullptr || (flags & core::kExit) == 0) return;
  for (const FragmentBuilder::Output& output : builder.outputs()) {
    producers_->Add(output.identity, output.time, {.ordinal = record.ordinal, .leaf = output.leaf}, record.begun);
  }
  builder.ForgetOutputs();
}

void FragmentEmitter::EmitConstructOnly(const OpenRecord& record, core::StackId stack) {
  if (!record.in_construct && stack == 0) return;
  OpenRecord silent = record;
  FragmentBuilder builder;
  Start(silent, builder);
  Emit(silent, builder, core::kEnter | core::kExit | core::kConstructOnly, stack);
}

}  // namespace msprobe::capture
