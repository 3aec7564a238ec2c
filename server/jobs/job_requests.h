#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "msprobe/v1/jobs.pb.h"

namespace msprobe::server {

// The bounds that proto/msprobe/v1/jobs.proto states, and what a request gets that states nothing.
inline constexpr size_t kMaxJobBytes = size_t{64} << 10;  // of options, a payload, a result
inline constexpr size_t kMaxJobMessage = 4096;
inline constexpr size_t kMaxJobTitle = 256;
inline constexpr size_t kMaxItemName = 1024;
inline constexpr size_t kMaxWorkerName = 256;
inline constexpr size_t kMaxVerdict = 32;
inline constexpr uint32_t kMaxJobItems = 100'000'000;
inline constexpr int kMaxLeaseItems = 1024;
inline constexpr size_t kMaxLeaseBytes = size_t{2} << 20;  // of payloads

// InvalidArgument names the field, the value and what would be right.
absl::Status CheckRequest(const v1::CreateJobRequest& request);
absl::Status CheckRequest(const v1::AddItemsRequest& request);
absl::Status CheckRequest(const v1::LeaseRequest& request);
absl::Status CheckRequest(const v1::HeartbeatRequest& request);
absl::Status CheckRequest(const v1::FinishRequest& request);
absl::Status CheckRequest(const v1::ReturnRequest& request);

// With the defaults filled in.
v1::JobLimits LimitsOf(const v1::JobLimits& asked);
absl::Duration LeaseDuration(uint32_t lease_ms);
// Its beginning, at most kMaxJobMessage bytes, cut between characters.
std::string ShortMessage(const std::string& message);

}  // namespace msprobe::server
