#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/core/responses/response_detector.h"
#include "msprobe/v1/ingest.pb.h"
#include "server/format/storage/scripted_block.h"

namespace msprobe::server {

// For tests: an agent whose every word is written down. Batches are numbered as they are taken.
class ScriptedAgent {
 public:
  // The session id is made of `name`.
  explicit ScriptedAgent(const std::string& name, const std::string& run = "run", uint32_t rank = 0);

  v1::Hello& hello() { return hello_; }
  const std::string& session() const { return hello_.session(); }

  // Into the batch under way. One API call: ENTER and EXIT of Torch.{name} with one float leaf each.
  ScriptedAgent& Call(uint32_t step, const std::string& name, float value = 1, uint32_t count = 0);
  ScriptedAgent& Enter(uint32_t step, const std::string& name, float value = 1, uint32_t count = 0);
  // Where the value is not finite, its count says so.
  ScriptedAgent& Exit(uint32_t step, const std::string& name, float value = 1, uint32_t count = 0);
  // A call with a checksum of its input, and no statistics.
  ScriptedAgent& CallWithChecksum(uint32_t step, const std::string& name, uint32_t crc32 = 1);
  // A call whose input is saved. Gives its hash.
  std::string CallWithPayload(uint32_t step, const std::string& name, const std::string& content);
  // A token of a reply; without one, the reply has ended.
  ScriptedAgent& Reply(uint32_t step, const std::string& request, std::optional<core::SampledToken> token);
  // One call of PrecisionDebugger.log.
  ScriptedAgent& Log(uint32_t step, const std::vector<std::pair<std::string, double>>& scalars);
  ScriptedAgent& StepEnd(uint32_t step);
  ScriptedAgent& Discard(uint32_t step);
  ScriptedAgent& RankKnown(uint32_t rank);
  // Hello's settings at another level.
  ScriptedAgent& SettingsChanged(const std::string& level);
  ScriptedAgent& Fault(uint32_t step, const std::string& where, const std::string& message);
  ScriptedAgent& Gap(uint32_t step, uint64_t fragments, v1::Marker::Gap::Reason reason);
  ScriptedAgent& ExportOpenStep(uint32_t step);
  ScriptedAgent& End(bool clean = true);

  // The batch under way, numbered; the next one is empty.
  v1::Batch Take();
  v1::Batch& batch() { return batch_; }

  static std::string HashOf(const std::string& content);
  static v1::PayloadChunk Chunk(const std::string& hash, uint64_t offset, const std::string& content, bool last);

 private:
  void Define(const v1::Structure& structure);
  v1::Marker& Mark() { return *batch_.add_items()->mutable_marker(); }

  v1::Hello hello_;
  v1::Batch batch_;
  uint64_t sequence_ = 0;
  uint64_t ordinal_ = 0;
  std::vector<uint64_t> defined_;
};

}  // namespace msprobe::server
