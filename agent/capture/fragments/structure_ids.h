#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "agent/capture/fragments/fragment_builder.h"
#include "agent/core/pool.h"
#include "agent/core/session.h"

namespace msprobe::capture {

// The session's ids of structures, by signature. A structure is built only where its signature is new.
//
// Thread-safe.
class StructureIds {
 public:
  // `session` outlives this.
  explicit StructureIds(core::Session* session) : session_(session) {}

  core::StructureId Of(const FragmentBuilder& builder);

 private:
  core::Session* const session_;
  absl::Mutex mu_;
  core::PooledTextMap<core::StructureId> ids_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::capture
