#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "msprobe/v1/ingest.pb.h"
#include "server/format/storage/record_assembler.h"
#include "server/ingest/session/session.h"
#include "server/store/record_source.h"

namespace msprobe::server {

// A test double for ingest and store: takes the sessions of an import, keeps them in memory, and gives their steps back
// as a store would. It wants every payload and checks the hash of the bytes that come.
class ReplayedSessions : public SessionOpener {
 public:
  struct Step {
    std::vector<v1::Block> blocks;
    bool ended = false;
  };
  struct Kept {
    v1::Hello hello;
    v1::CaptureSettings settings;  // the latest
    std::map<uint32_t, v1::CaptureSettings> step_settings;
    std::map<uint32_t, Step> steps;
    std::map<uint64_t, std::string> structures;
    std::map<uint64_t, std::string> stacks;
    std::map<std::string, std::string> payloads;
    uint64_t sequence = 0;
    bool ended_clean = false;
    std::vector<v1::Marker::Fault> faults;
    std::vector<v1::Marker::Gap> gaps;
  };

  absl::StatusOr<std::shared_ptr<Session>> OpenSession(const v1::Hello& hello) override;

  // In order of opening.
  std::vector<std::shared_ptr<Kept>>& sessions() { return sessions_; }
  std::unique_ptr<RecordSource> ReadStep(size_t session, uint32_t step) const;

 private:
  std::vector<std::shared_ptr<Kept>> sessions_;
};

}  // namespace msprobe::server
