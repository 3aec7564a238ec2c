#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "server/ingest/scripted/scripted_agent.h"
#include "server/store/store.h"

namespace msprobe::server {

// For tests: the batches of one rank, made from its seed alone, and a check that a store holds them.
//
// Batch n (from 1) holds a few calls of step (n - 1) / batches_a_step; the last batch of a step ends it; some calls
// carry a payload, of content that other ranks may carry, too.
// Threads: one at a time.
class ScriptedLoad {
 public:
  // How many different payloads all ranks carry together, and of what size: 1 to 7 times the unit.
  struct Contents {
    uint32_t different = 40;
    size_t unit_bytes = 3000;
  };
  ScriptedLoad(const std::string& run, uint32_t rank, uint64_t seed, uint32_t batches_a_step, Contents contents);
  ScriptedLoad(const std::string& run, uint32_t rank, uint64_t seed) : ScriptedLoad(run, rank, seed, 5, {}) {}
  ScriptedLoad(const std::string& run, uint32_t rank, uint64_t seed, uint32_t batches_a_step)
      : ScriptedLoad(run, rank, seed, batches_a_step, {}) {}

  const v1::Hello& hello() const { return hello_; }
  v1::Hello& hello() { return hello_; }
  const std::string& session() const { return hello_.session(); }
  uint32_t rank() const { return rank_; }

  // The same bytes for the same sequence, whenever it is asked.
  const v1::Batch& Batch(uint64_t sequence);
  // Of a payload that some batch so far announced; empty: of none.
  std::string Content(const std::string& hash) const;

  // Of every payload announced so far.
  std::set<std::string> hashes() const;

  // The faults of the store's view of this rank, a line each; empty: there are none. Checked: the records are those of
  // batches 1 to the session's watermark, each once, in order; the watermark is at least `durable_through`; every
  // payload that is there has its bytes, and those in `stored` are there; a step is COMPLETE only where it is.
  std::vector<std::string> Check(const Store& store, uint64_t durable_through, const std::set<std::string>& stored);

  uint64_t watermark(const Store& store) const;

 private:
  void Generate();

  const std::string run_;
  const uint32_t rank_;
  const uint64_t seed_;
  const uint32_t batches_a_step_;
  const Contents contents_of_;
  ScriptedAgent agent_;
  v1::Hello hello_;
  std::vector<v1::Batch> batches_;                 // [n - 1]
  std::vector<std::vector<std::string>> records_;  // [n - 1]: "name=value"
  std::map<std::string, std::string> contents_;    // by hash
};

// Joined records of a step in order, as ScriptedLoad writes them: "Torch.op3.2.forward=17".
std::vector<std::string> RecordsOf(RecordSource& step);

}  // namespace msprobe::server
