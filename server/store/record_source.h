#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/ingest.pb.h"
#include "msprobe/v1/query.pb.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// One step of one rank as one session left it: what an exporter or a query needs, and no word of how it is stored.
//
// Threads: one thread at a time. Reads a snapshot: what arrives after the reader was made is not seen.
// Ownership: must not outlive the store it came from.
class RecordSource {
 public:
  using State = v1::StepSummary::State;

  virtual ~RecordSource() = default;

  virtual const std::string& run() const = 0;
  virtual uint32_t step() const = 0;
  virtual const v1::Rank& rank() const = 0;
  // Number of the session within its run; grows in order of registration.
  virtual uint32_t epoch() const = 0;
  virtual State state() const = 0;
  // The settings that the step was captured with, whatever the session was told since.
  virtual const v1::CaptureSettings& settings() const = 0;
  // Framework version, program and host as the session said hello.
  virtual const v1::Hello& hello() const = 0;

  // Every record of the step, joined, in order of ordinal. Invariants:
  // 1. a record without EXIT is given too; records flagged FRAGMENT_CONSTRUCT_ONLY are given too;
  // 2. Record.stack is empty; stack_id (0: none) names it for Stack();
  // 3. the record is borrowed for the length of the call.
  // Stops at the first status that is not OK and returns it.
  virtual absl::Status ForEachRecord(
      absl::FunctionRef<absl::Status(const v1::Record& record, uint64_t stack_id)> visit) = 0;

  // The same for those records only that `wanted` picks by full name and token; the others are not decoded.
  virtual absl::Status ForEachRecordNamed(
      absl::FunctionRef<bool(const std::string& full_name, uint32_t token)> wanted,
      absl::FunctionRef<absl::Status(const v1::Record& record, uint64_t stack_id)> visit) {
    return ForEachRecord([&](const v1::Record& record, uint64_t stack_id) {
      return wanted(record.full_name(), record.token()) ? visit(record, stack_id) : absl::OkStatus();
    });
  }

  // As ForEachRecord for who does not look at TensorLeaf.edge: it may be left out, which is cheaper.
  virtual absl::Status ForEachRecordWithoutEdges(
      absl::FunctionRef<absl::Status(const v1::Record& record, uint64_t stack_id)> visit) {
    return ForEachRecord(visit);
  }

  // As ForEachRecord for who does not look at Record.fields: they may be left empty, which is cheaper.
  virtual absl::Status ForEachRecordHead(
      absl::FunctionRef<absl::Status(const v1::Record& head, uint64_t stack_id)> visit) {
    return ForEachRecord(visit);
  }

  // False: no record refers to a payload.
  virtual bool may_have_payloads() { return true; }

  // Innermost frame first. NotFound: the run has no stack of that id.
  virtual absl::StatusOr<std::vector<v1::Frame>> Stack(uint64_t stack_id) = 0;

  // The bytes of a payload (PayloadRef.hash), in order, in chunks of at most 1 MiB. NotFound: the payload never
  // arrived.
  virtual absl::Status ReadPayload(std::string_view hash,
                                   absl::FunctionRef<absl::Status(std::string_view chunk)> visit) = 0;

  // The chunks that hold some of `size` bytes from `offset` on, each with the offset of its first byte.
  virtual absl::Status ReadPayloadRange(
      std::string_view hash, uint64_t offset, uint64_t size,
      absl::FunctionRef<absl::Status(uint64_t offset, std::string_view chunk)> visit) {
    uint64_t at = 0;
    return ReadPayload(hash, [&](std::string_view chunk) {
      const uint64_t begin = at;
      at += chunk.size();
      return begin < offset + size && at > offset ? visit(begin, chunk) : absl::OkStatus();
    });
  }

  // Lines for dump_error_info.log, in order of arrival.
  virtual std::vector<v1::Marker::Fault> faults() = 0;
  virtual std::vector<v1::Marker::Gap> gaps() = 0;
};

}  // namespace msprobe::server
