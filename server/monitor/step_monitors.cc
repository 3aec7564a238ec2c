#include "server/monitor/step_monitors.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "server/monitor/live_checks.h"
#include "server/monitor/rule_watch.h"
#include "server/monitor/step_exports.h"
#include "server/monitor/step_watch.h"

namespace msprobe::server {

StepMonitors::StepMonitors(const std::vector<Make>& all, const MonitorParts& parts) {
  for (const Make& make : all) {
    if (std::unique_ptr<StepMonitor> monitor = make(parts); monitor != nullptr) monitors_.push_back(std::move(monitor));
  }
}

void StepMonitors::OnRecords(const storage::SessionRow& session, uint32_t step) {
  for (const auto& monitor : monitors_) monitor->OnRecords(session, step);
}

void StepMonitors::OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) {
  for (const auto& monitor : monitors_) monitor->OnStepFinished(session, step, state);
}

void StepMonitors::OnResponses(const std::string& session, const std::vector<ResponseToken>& tokens) {
  for (const auto& monitor : monitors_) monitor->OnResponses(session, tokens);
}

void StepMonitors::OnScalars(const std::string& session, const std::vector<ScalarPoint>& points) {
  for (const auto& monitor : monitors_) monitor->OnScalars(session, points);
}

void StepMonitors::OnExportRequested(const std::string& session, uint32_t step) {
  for (const auto& monitor : monitors_) monitor->OnExportRequested(session, step);
}

void StepMonitors::OnExportAwaited(const std::string& session, uint32_t step) {
  for (const auto& monitor : monitors_) monitor->OnExportAwaited(session, step);
}

void StepMonitors::OnRankKnown(const std::string& session, const v1::Rank& from, const v1::Rank& to) {
  for (const auto& monitor : monitors_) monitor->OnRankKnown(session, from, to);
}

void StepMonitors::OnSessionClosed(const storage::SessionRow& session) {
  for (const auto& monitor : monitors_) monitor->OnSessionClosed(session);
}

absl::Status StepMonitors::Begin(Sessions* sessions) {
  for (const auto& monitor : monitors_) {
    if (absl::Status status = monitor->Begin(sessions); !status.ok()) return status;
  }
  return absl::OkStatus();
}

size_t StepMonitors::waiting() const {
  size_t waiting = 0;
  for (const auto& monitor : monitors_) waiting += monitor->waiting();
  return waiting;
}

bool StepMonitors::AwaitDone(absl::Duration timeout) const {
  const absl::Time deadline = absl::Now() + timeout;
  return std::all_of(monitors_.begin(), monitors_.end(),
                     [deadline](const auto& monitor) { return monitor->AwaitDone(deadline - absl::Now()); });
}

void StepMonitors::Forget(const std::string& run) {
  for (const auto& monitor : monitors_) monitor->Forget(run);
}

void StepMonitors::Stop() {
  for (const auto& monitor : monitors_) monitor->Stop();
}

std::vector<StepMonitors::Make> StandardMonitors() {
  return {MakeStepWatch, MakeRuleWatch, MakeStepExports, MakeLiveChecks};
}

}  // namespace msprobe::server
