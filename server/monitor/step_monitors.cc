#include "server/monitor/step_monitors.h"

#include <utility>

#include "server/monitor/step_watch.h"

namespace msprobe::server {

StepMonitors::StepMonitors(const std::vector<Make>& all, const MonitorParts& parts) {
  for (const Make& make : all) {
    if (std::unique_ptr<StepMonitor> monitor = make(parts); monitor != nullptr) monitors_.push_back(std::move(monitor));
  }
}

void StepMonitors::OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) {
  for (const auto& monitor : monitors_) monitor->OnStepFinished(session, step, state);
}

void StepMonitors::Forget(const std::string& run) {
  for (const auto& monitor : monitors_) monitor->Forget(run);
}

void StepMonitors::Stop() {
  for (const auto& monitor : monitors_) monitor->Stop();
}

std::vector<StepMonitors::Make> StandardMonitors() { return {MakeStepWatch}; }

}  // namespace msprobe::server
