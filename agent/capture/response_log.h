#pragma once

#include <cstdint>
#include <string_view>

#include "agent/capture/faults.h"
#include "agent/capture/fragments/structure_ids.h"
#include "agent/core/responses/response_detector.h"
#include "agent/core/session.h"

namespace msprobe::capture {

// Sends the tokens of replies as they are sampled: one fragment of RecordKind::kScalars each, whose structure has the
// name core::kResponse (record.proto). The request's id is a value, so structures stay three however many come.
//
// Thread-safe. Throws nothing: what fails is a fault of the step.
class ResponseLog {
 public:
  // Both outlive this.
  ResponseLog(core::Session* session, Faults* faults);

  // The step in which the token was sampled. token.categories does not travel.
  void Token(uint32_t step, std::string_view request, const core::SampledToken& token);
  void End(uint32_t step, std::string_view request);

 private:
  void Send(uint32_t step, std::string_view request, const core::SampledToken* token);

  core::Session& session_;
  Faults& faults_;
  StructureIds structures_;
};

}  // namespace msprobe::capture
