#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/core/log.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

// The steps of a session whose export was asked for and has not been reported yet.
//
// Threads: one.
class AwaitedExports {
 public:
  explicit AwaitedExports(const Log* log) : log_(log) {}

  // Where the marker that asks is: an entry of the queue, and the sequence of a batch.
  struct Place {
    uint64_t entry = 0;
    uint64_t batch = 0;
  };
  // A marker was packed while `open_step` was open. The end of a step asks for its export, and so do the end of the
  // session and ExportOpenStep for the open step.
  void Packed(const v1::Marker& marker, std::optional<uint32_t> open_step, Place place);
  // Says where the files are, or why there are none. Tables of gradients lie in one directory, which is said once.
  void Exported(const v1::StepExported& exported);
  // For a session that was left. A batch that its process had packed, with `open_step` open as it begins. Gives the
  // step that is open as it ends.
  std::optional<uint32_t> Held(const v1::Batch& batch, std::optional<uint32_t> open_step);
  // For a session that was left, before Held: nobody here knows for what else its process had asked, nor whether a step
  // whose end alone was left has records. Its server does, from its Welcome on.
  void AskServer() { unknown_ = true; }
  bool unknown() const { return unknown_; }
  // Of a Welcome, before Welcomed: the server had made batches up to `freed_through` durable, and has them up to
  // `durable_through`. It will not report the steps that were asked for in between: nobody awaits them any more. Gives
  // them, where the server exported.
  std::vector<uint32_t> ServerLost(uint64_t durable_through, uint64_t freed_through);
  // Whether the server exports at all, and the steps of a left session that it has not exported yet (Welcome).
  void Welcomed(bool server_exports, const std::vector<uint32_t>& unexported, uint64_t durable_through);

  // The steps that have ended: a server that has exported one already reports it again.
  void AddTo(v1::Hello* hello) const;
  // Whether a server still has to report some. False where the server does not export.
  bool any() const { return server_exports_ == true && !asked_.empty(); }
  // The steps asked for up to `entry`; none where the server does not export.
  std::vector<uint32_t> Missing(uint64_t entry) const;
  // The steps asked for up to `entry` that ServerLost gave, until they are forgotten.
  std::vector<uint32_t> Lost(uint64_t entry) const;
  void ForgetLost(uint64_t entry);

 private:
  struct Asked {
    Place place;              // of the marker that asked
    bool complete = false;    // the step has ended; an export before that is not the last one
    bool has_records = true;  // false: only the server knows whether it has any
  };

  void Ask(uint32_t step, const Asked& asked);

  const Log* const log_;
  std::optional<bool> server_exports_;  // of the last Welcome; where it does not, nothing is awaited
  bool unknown_ = false;
  std::map<uint32_t, Asked> asked_;    // by step
  std::map<uint32_t, uint64_t> lost_;  // by step: the entry that asked
  std::string told_directory_;         // of gradients
};

}  // namespace msprobe::core
