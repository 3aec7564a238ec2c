#include "agent/capture/response_log.h"

#include "agent/capture/fragments/fragment_builder.h"

namespace msprobe::capture {

ResponseLog::ResponseLog(core::Session* session, Faults* faults)
    : session_(*session), faults_(*faults), structures_(session) {}

void ResponseLog::Token(uint32_t step, std::string_view request, const core::SampledToken& token) {
  Send(step, request, &token);
}

void ResponseLog::End(uint32_t step, std::string_view request) { Send(step, request, nullptr); }

void ResponseLog::Send(uint32_t step, std::string_view request, const core::SampledToken* token) {
  OpenRecord record;
  record.step = step;
  faults_.Contain(record, [&] {
    FragmentBuilder builder;
    builder.Start(core::kResponse, core::RecordKind::kScalars, core::Direction::kForward);
    builder.Key("request");
    builder.String(request);
    if (token != nullptr) {
      builder.Key("token");
      builder.Integer(token->id);
      if (token->has_logprobs) {
        builder.Key("top1");
        builder.Float(token->top1);
        builder.Key("mass");
        builder.Float(token->mass);
      }
    }
    core::Fragment fragment;
    fragment.step = step;
    fragment.structure = structures_.Of(builder);
    fragment.flags = core::kEnter | core::kExit;
    builder.Fill(fragment);
    session_.Emit(fragment);
  });
}

}  // namespace msprobe::capture
