#include "server/jobs/job_requests.h"

#include <algorithm>
#include <set>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr uint32_t kMostAttempts = 100;
constexpr uint32_t kWeekMs = 7 * 24 * 3600 * 1000;
constexpr uint32_t kHourMs = 3600 * 1000;
constexpr uint32_t kShortestLeaseMs = 1000, kLongestLeaseMs = 600'000, kLeaseMs = 30'000;
constexpr size_t kTokenBytes = 16;

absl::Status TooMuch(std::string_view field, size_t size, size_t most, std::string_view unit = " bytes") {
  if (size <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat(field, " has ", size, unit, "; at most ", most, " are taken"));
}

absl::Status CheckKind(const std::string& field, const std::string& kind) {
  const bool fits = !kind.empty() && kind.size() <= 32 && std::all_of(kind.begin(), kind.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Cat(field, " is \"", kind.substr(0, 64), "\"; a kind has 1 to 32 lower-case letters, digits, '_' and '-'"));
}

absl::Status CheckRange(std::string_view field, uint32_t value, uint32_t least, uint32_t most) {
  if (value == 0 || (value >= least && value <= most)) return absl::OkStatus();
  return absl::InvalidArgumentError(Cat(field, " is ", value, "; it goes from ", least, " to ", most));
}

}  // namespace

absl::Status CheckRequest(const v1::CreateJobRequest& request) {
  if (absl::Status status = CheckKind("kind", request.kind()); !status.ok()) return status;
  if (request.token().size() != kTokenBytes) {
    return absl::InvalidArgumentError(Cat("token has ", request.token().size(), " bytes; it has ", kTokenBytes));
  }
  absl::Status status = TooMuch("title", request.title().size(), kMaxJobTitle);
  if (status.ok()) status = TooMuch("options", request.options().size(), kMaxJobBytes);
  if (status.ok()) status = CheckRange("limits.attempts", request.limits().attempts(), 1, kMostAttempts);
  if (status.ok()) status = CheckRange("limits.item_timeout_ms", request.limits().item_timeout_ms(), 1, kWeekMs);
  return status;
}

absl::Status CheckRequest(const v1::AddItemsRequest& request) {
  for (const v1::JobItem& item : request.items()) {
    absl::Status status = TooMuch("items.payload", item.payload().size(), kMaxJobBytes);
    if (status.ok()) status = TooMuch("items.name", item.name().size(), kMaxItemName);
    if (!status.ok()) return status;
  }
  if (request.first() > kMaxJobItems || request.first() + static_cast<uint64_t>(request.items_size()) > kMaxJobItems) {
    return absl::ResourceExhaustedError(Cat("a job has at most ", kMaxJobItems, " items"));
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const v1::LeaseRequest& request) {
  if (request.kinds().empty()) {
    return absl::InvalidArgumentError("kinds is empty; name the kinds that this worker has functions for");
  }
  absl::Status status = TooMuch("kinds", static_cast<size_t>(request.kinds_size()), 100, "");
  for (const std::string& kind : request.kinds()) {
    if (status.ok()) status = CheckKind("kinds", kind);
  }
  if (status.ok()) status = TooMuch("worker", request.worker().size(), kMaxWorkerName);
  if (status.ok()) status = CheckRange("max_items", request.max_items(), 1, kMaxLeaseItems);
  if (status.ok()) status = CheckRange("lease_ms", request.lease_ms(), kShortestLeaseMs, kLongestLeaseMs);
  if (status.ok()) status = CheckRange("wait_ms", request.wait_ms(), 1, 30'000);
  return status;
}

absl::Status CheckRequest(const v1::HeartbeatRequest& request) {
  return TooMuch("leases", static_cast<size_t>(request.leases_size()), kMaxLeaseItems, "");
}

absl::Status CheckRequest(const v1::FinishRequest& request) {
  absl::Status status = TooMuch("results", static_cast<size_t>(request.results_size()), kMaxLeaseItems, "");
  if (status.ok()) status = TooMuch("worker", request.worker().size(), kMaxWorkerName);
  if (!status.ok()) return status;
  std::set<uint64_t> items;
  for (const v1::FinishRequest::Result& result : request.results()) {
    if (!items.insert(result.item()).second) {
      return absl::InvalidArgumentError(Cat("results has item ", result.item(), " twice"));
    }
    if (result.outcome() != v1::OUTCOME_DONE && result.outcome() != v1::OUTCOME_FAILED) {
      return absl::InvalidArgumentError(Cat("results.outcome of item ", result.item(), " is ",
                                            v1::Outcome_Name(result.outcome()), "; a worker says DONE or FAILED"));
    }
    status = TooMuch(Cat("results.result of item ", result.item()), result.result().size(), kMaxJobBytes);
    if (status.ok())
      status = TooMuch(Cat("results.verdict of item ", result.item()), result.verdict().size(), kMaxVerdict);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const v1::ReturnRequest& request) {
  absl::Status status = TooMuch("crashes", static_cast<size_t>(request.crashes_size()), kMaxLeaseItems, "");
  return status.ok() ? TooMuch("worker", request.worker().size(), kMaxWorkerName) : status;
}

v1::JobLimits LimitsOf(const v1::JobLimits& asked) {
  v1::JobLimits limits = asked;
  if (limits.attempts() == 0) limits.set_attempts(3);
  if (limits.item_timeout_ms() == 0) limits.set_item_timeout_ms(kHourMs);
  return limits;
}

absl::Duration LeaseDuration(uint32_t lease_ms) { return absl::Milliseconds(lease_ms == 0 ? kLeaseMs : lease_ms); }

std::string ShortMessage(const std::string& message) {
  if (message.size() <= kMaxJobMessage) return message;
  size_t end = kMaxJobMessage;
  while (end > 0 && (static_cast<uint8_t>(message[end]) & 0xc0) == 0x80) --end;
  return message.substr(0, end);
}

}  // namespace msprobe::server
