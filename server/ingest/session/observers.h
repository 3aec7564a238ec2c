#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/ingest/session/events.h"

namespace msprobe::server {

// Hands on to several observers, in order. Constant after construction; they are borrowed.
class Observers : public SessionObserver {
 public:
  explicit Observers(std::vector<SessionObserver*> observers) : observers_(std::move(observers)) {}

  void OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State state) override {
    for (SessionObserver* observer : observers_) observer->OnStepFinished(session, step, state);
  }
  void OnExportRequested(const std::string& session, uint32_t step) override {
    for (SessionObserver* observer : observers_) observer->OnExportRequested(session, step);
  }
  void OnExportAwaited(const std::string& session, uint32_t step) override {
    for (SessionObserver* observer : observers_) observer->OnExportAwaited(session, step);
  }
  void OnRankKnown(const std::string& session, const v1::Rank& from, const v1::Rank& to) override {
    for (SessionObserver* observer : observers_) observer->OnRankKnown(session, from, to);
  }

 private:
  const std::vector<SessionObserver*> observers_;
};

}  // namespace msprobe::server
