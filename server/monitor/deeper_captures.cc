#include "server/monitor/deeper_captures.h"

#include <algorithm>
#include <utility>

#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/monitor/capture_settings.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kWaitMs = 30'000;  // for processes to come to their next step

v1::Alarm::Captured ResultOf(v1::Alarm::Captured captured, uint32_t steps, const v1::ControlRunResponse& response) {
  using Process = v1::ControlRunResponse::Process;
  for (const Process& process : response.processes()) {
    const uint32_t first = process.report().holds_from();
    if (process.answer() == Process::OBEYED && !process.report().refused()) {
      captured.set_first_step(captured.processes() == 0 ? first : std::min(captured.first_step(), first));
      captured.set_last_step(std::max(captured.last_step(), first + steps - 1));
      captured.set_processes(captured.processes() + 1);
    } else if (captured.refused().empty()) {
      captured.set_refused(Cat(RankName(process.rank()), ": ",
                               process.answer() == Process::OBEYED   ? process.report().said()
                               : process.answer() == Process::UNABLE ? "its agent is too old"
                               : process.answer() == Process::WAITS  ? "it has not come to its next step in 30 s"
                                                                     : "it does not answer"));
    }
  }
  return captured;
}

}  // namespace

void DeeperCaptures::Decide(const v1::Rule& rule, const std::vector<v1::Alarm>& earlier, v1::Alarm& alarm) const {
  const CaptureSettings settings = CaptureSettingsOf(rule.capture());
  v1::Alarm::Captured& captured = *alarm.mutable_captured();
  uint32_t times = 0;
  uint64_t bytes = 0;
  for (const v1::Alarm& other : earlier) {
    if (other.rule() != rule.name() || other.number() == alarm.number() || other.captured().asked().empty()) continue;
    ++times;
    bytes += other.captured().bytes();
  }
  if (times >= settings.times) {
    captured.set_refused(Cat("the rule's budget of ", settings.times, " captures is used up"));
  } else if (bytes >= settings.bytes) {
    captured.set_refused(Cat("the rule's budget of ", settings.bytes, " bytes is used up"));
  } else {
    captured.set_asked(settings.shown);
  }
}

void DeeperCaptures::Begin(const std::string& run, const v1::Rule& rule, const v1::Alarm& alarm, Done done) {
  if (alarm.captured().asked().empty()) return;
  const CaptureSettings settings = CaptureSettingsOf(rule.capture());
  v1::ControlRunRequest request;
  request.set_run(run);
  request.set_wait_ms(kWaitMs);
  request.mutable_command()->set_action(v1::ControlCommand::DEEPER);
  request.mutable_command()->set_steps(settings.steps);
  request.mutable_command()->set_settings_json(settings.json);
  workers_.Add(run, [this, request, done = std::move(done), captured = alarm.captured(), steps = settings.steps,
                     who = Cat("rule ", rule.name(), ", alarm ", alarm.number())] {
    const auto response = ask_(request, who, [this] { return stopping_.load(); });
    v1::Alarm::Captured result = captured;
    if (response.ok()) {
      result = ResultOf(captured, steps, *response);
    } else {
      result.set_refused(std::string(response.status().message()));
    }
    done(std::move(result));
  });
}

void DeeperCaptures::Stop() {
  stopping_ = true;
  workers_.Stop();
}

absl::StatusOr<uint64_t> DeeperCaptures::BytesOf(uint32_t run, const v1::Alarm::Captured& captured) const {
  if (captured.processes() == 0) return 0;
  auto sessions = store_->catalogue().Sessions(run);
  if (!sessions.ok()) return sessions.status();
  uint64_t bytes = 0;
  for (const storage::SessionRow& session : *sessions) {
    for (uint32_t step = captured.first_step(); step <= captured.last_step(); ++step) {
      const StepKey key{run, RankCode(session.hello().rank()), step, session.epoch()};
      auto row = store_->database().Find<storage::StepRow>(key.Encode());
      if (!row.ok()) return row.status();
      if (row->has_value()) bytes += (*row)->row_bytes() + (*row)->payload_bytes();
    }
  }
  return bytes;
}

}  // namespace msprobe::server
