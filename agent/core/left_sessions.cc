#include "agent/core/left_sessions.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/time/clock.h"
#include "agent/core/background_thread.h"
#include "agent/core/dictionary.h"
#include "agent/core/fragment_queue.h"
#include "agent/core/memory_budget.h"
#include "agent/core/sender.h"
#include "agent/core/str_cat.h"

namespace msprobe::core {
namespace {

// How often a thread that waits for a server looks whether it is to stop.
constexpr absl::Duration kLook = absl::Milliseconds(100);
constexpr size_t kMemoryBytes = size_t{64} << 20;

}  // namespace

LeftSessions::LeftSessions(std::string directory, Connect connect, const Log* log)
    : directory_(std::move(directory)), connect_(std::move(connect)), log_(log) {}

void LeftSessions::Start() {
  if (Spool::Names(directory_).empty()) return;
  try {
    thread_ = StartBackgroundThread("msprobe-left", [this] { Run(); });
  } catch (const std::system_error& error) {
    log_->Warning(Cat("msprobe: what is left in ", directory_, " is not sent: ", error.what()));
  }
}

void LeftSessions::Stop(absl::Duration timeout) {
  if (!thread_.joinable()) return;
  const absl::Time deadline = absl::Now() + timeout;
  while (!done_ && absl::Now() < deadline) absl::SleepFor(std::min(kLook, deadline - absl::Now()));
  stop_ = true;
  thread_.join();
}

void LeftSessions::Run() {
  for (const std::string& name : Spool::Names(directory_)) {
    if (stop_) break;
    absl::StatusOr<Spool::Left> left = Spool::TakeOver(directory_, name);
    absl::Status status = left.status();
    if (left.ok()) status = Send(*std::move(left));
    if (!status.ok() && status.code() != absl::StatusCode::kUnavailable) {
      log_->Warning(Cat("msprobe: what an earlier process left is not sent: ", status.message()));
    }
  }
  done_ = true;
}

absl::Status LeftSessions::Send(Spool::Left left) {
  v1::Hello hello;
  if (!hello.ParseFromString(left.session) || hello.session().empty()) {
    return absl::DataLossError(Cat(directory_, " has a spool that does not say whose it is"));
  }
  log_->Info(Cat("msprobe: sending what process ", hello.process_id(), " of run ", hello.run(), " left in ", directory_,
                 ": ", left.spool.held_bytes(), " bytes"));
  hello.clear_capabilities();  // nobody is there to obey
  const auto bell = std::make_shared<Doorbell>();
  const auto budget =
      std::make_shared<MemoryBudget>(kMemoryBytes, LossPolicy::kSpool, absl::ZeroDuration(), [bell] { bell->Ring(); });
  FragmentQueue queue(bell.get());
  const Dictionary dictionary;
  AtomicCounters counters;
  Sender sender(SenderParts{&queue, &dictionary, budget, bell, log_, &counters, nullptr, nullptr}, std::move(hello),
                connect_(bell), std::move(left.spool), true, absl::ZeroDuration());
  sender.Restore(left.entries);
  sender.Start();
  while (!stop_ && !sender.Wait(1, kLook).ok()) {
  }
  sender.Stop(absl::ZeroDuration());
  return absl::OkStatus();
}

}  // namespace msprobe::core
