#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/shards/missing_shards.h"
#include "server/shards/peers.h"
#include "server/shards/shown_steps.h"
#include "server/store/block_source.h"

namespace msprobe::server {

// Whom a request may ask: this server's store, and the other servers of its cluster. All of them outlive it.
struct Shards {
  const Store* store = nullptr;
  Peers* peers = nullptr;            // null: this server is alone
  MissingShards* missing = nullptr;  // takes the servers that could not be asked; null where peers is null
};

// A run over all of its shards. Several shards have the same rank where it was restarted and was a process without a
// rank when its session began: the session that began last is shown, with the earlier epochs of its own shard.
// Threads: one while it is opened, any afterwards. Everything in `Shards` outlives it.
class RunView {
 public:
  // NotFound: no server has the run. Unavailable: no server that answers has it, and some do not answer; these are in
  // shards.missing.
  static absl::StatusOr<RunView> Open(const Shards& shards, const std::string& run);

  const std::string& run() const { return run_; }
  // In order of step, then rank (ranks before processes).
  const std::vector<ShownStep>& steps() const { return steps_; }
  // Sessions that have neither ended nor been lost.
  uint32_t open_sessions() const { return open_sessions_; }
  // The shards that hold a part of it, null being this one; and whether a session streams into one of the others.
  const std::vector<Peer*>& holders() const { return holders_; }
  bool in_use_elsewhere() const { return in_use_elsewhere_; }

  absl::StatusOr<std::unique_ptr<BlockSource>> Blocks(const ShownStep& step) const;
  absl::StatusOr<std::unique_ptr<RecordSource>> Records(const ShownStep& step) const;
  // Epoch absent: the one that is shown. NotFound says what there is.
  absl::StatusOr<std::unique_ptr<RecordSource>> Records(uint32_t step, const v1::Rank& rank,
                                                        std::optional<uint32_t> epoch) const;

 private:
  struct Known;  // what was learnt of the others

  absl::Status AddHere();
  absl::Status Ask(Known& known);
  void Show();
  void Report(const Known& known) const;

  Shards shards_;
  std::string run_;
  std::vector<ShownStep> steps_;
  std::vector<ShownStep> hidden_;  // of shards that another one's session has replaced
  std::vector<Peer*> holders_;
  uint32_t open_sessions_ = 0;
  bool in_use_elsewhere_ = false;
};

}  // namespace msprobe::server
