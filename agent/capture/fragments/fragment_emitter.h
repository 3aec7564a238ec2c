#pragma once

#include <cstdint>

#include "agent/capture/compare/diff_check.h"
#include "agent/capture/edges/producers.h"
#include "agent/capture/fragments/fragment_builder.h"
#include "agent/capture/fragments/structure_ids.h"
#include "agent/capture/open_record.h"
#include "agent/capture/record_opener.h"
#include "agent/capture/steps/step_state.h"
#include "agent/core/log.h"
#include "agent/core/session.h"

namespace msprobe::capture {

// Emits the fragments of open records into the session.
//
// Thread-safe. A FragmentBuilder is the calling thread's own.
class FragmentEmitter {
 public:
  // All outlive this. diff_check: null without bench_path.
  // producers: learns of the tensors that records give out; null without edges.
  FragmentEmitter(core::Session* session, StepState* step, RecordOpener* opener, DiffCheck* diff_check,
                  Producers* producers)
      : session_(*session),
        step_(*step),
        opener_(*opener),
        diff_check_(diff_check),
        producers_(producers),
        structures_(session) {}

  // Prepares `builder` for a fragment of `record`.
  static void Start(const OpenRecord& record, FragmentBuilder& builder);

  // Emits the fields in `builder` as a fragment of `record`. Emits nothing if the record's step has ended. A module or
  // a gradient of parameters moves to the place of its last update, and so does an API whose first fields come late.
  // flags: core::kEnter, kExit and others of core/record.h.
  void Emit(OpenRecord& record, FragmentBuilder& builder, uint32_t flags, core::StackId stack = 0);

  // Emits a fragment without fields, for a record that is not wanted but stands in construct.json or, where `stack` is
  // given, in stack.json. Emits nothing otherwise.
  void EmitConstructOnly(const OpenRecord& record, core::StackId stack = 0);

 private:
  // Compares a record that ends with the other dump (DiffCheck). One that differs is emitted again from its beginning.
  void CompareBeforeEmit(OpenRecord& record, FragmentBuilder& builder, uint32_t flags);
  void EmitFragment(const OpenRecord& record, FragmentBuilder& builder, uint32_t flags, core::StackId stack);

  core::Session& session_;
  StepState& step_;
  RecordOpener& opener_;
  DiffCheck* const diff_check_;
  Producers* const producers_;
  StructureIds structures_;
  const core::Log log_;
};

}  // namespace msprobe::capture
