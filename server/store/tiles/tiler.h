#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/format/storage/structure_summary.h"
#include "server/format/tiles/tile_writer.h"
#include "server/store/store.h"
#include "server/store/tiles/tiled_passes.h"

namespace msprobe::server {

struct TilerOptions {
  absl::Duration period = absl::Seconds(1);  // between looks at what has finished
  double duty = 0.5;                         // the largest share of one core's time that it takes
  int niceness = 19;                         // of its thread: the lowest priority
  uint32_t passes = TileKey::kPasses;        // of a full set
  // A set is also full when its rows have this many bytes. Bounds one write, and the tiler's memory (about five times
  // as much).
  uint64_t set_bytes = uint64_t{24} << 20;
  // The fewest passes with the same calls that become a set where no more of them will come.
  uint32_t fewest_passes = 8;
  // How many finished steps of one session may wait for others like them. Beyond that the oldest are given up: they
  // stay rows.
  size_t max_waiting = 512;
};

// Rewrites finished steps in the background: their rows become tiles, in one atomic write that deletes the rows.
//
// 1. Readers find every step whole at any time, as rows or as tiles. A crash leaves one or the other.
// 2. Only steps that wait (MetaSpace::kUntiled) are looked at: the cost does not grow with the store.
// 3. Passes become tiles as soon as there are enough with the same calls in the same session. A session that has ended
//    waits for no more of them.
// Threads: it has one of its own between Start and Stop; call RunOnce only outside of that. Counters from any thread.
class Tiler {
 public:
  // The store must outlive the tiler.
  explicit Tiler(Store* store, TilerOptions options = {});
  ~Tiler();

  void Start();
  // A set that is being made is given up.
  void Stop();

  // Everything there is to do now.
  absl::Status RunOnce();

  struct Counters {
    uint64_t sets = 0, passes = 0, row_bytes = 0, tile_bytes = 0, failures = 0;
    uint64_t waiting = 0;  // finished steps that are rows, as of the last look
    absl::Duration busy;
  };
  Counters counters() const;

 private:
  // One pass of a step that waits for tiles.
  struct Note {
    StepKey step;
    uint32_t token = 0;
    uint64_t signature = 0;
    uint64_t bytes = 0;
  };
  using Notes = std::vector<Note>;
  struct Row {
    RowKey key;
    std::shared_ptr<v1::Block> block;
    uint64_t bytes = 0;
  };
  using Rows = std::vector<Row>;  // of one pass, in order of arrival
  // A set that is being made, and what it changes.
  struct Set {
    uint32_t number = 0;
    storage::TileSetRow row;
    std::vector<Rows> read;  // keeps the blocks that `passes` refer to
    std::vector<TilePass> passes;
    std::map<std::string, storage::TiledRow> tiled;  // by key: where the passes of each step lie
    uint64_t row_bytes = 0;
    ChangeSet changes;
  };

  void Loop();
  bool stopping() const;
  absl::StatusOr<std::vector<StepKey>> Waiting() const;
  absl::Status TileSession(const std::vector<StepKey>& steps);
  absl::StatusOr<Notes> Look(const StepKey& step);
  // Pass by pass, in order of token.
  absl::Status ForEachPass(const StepKey& step, const std::string& prefix,
                           absl::FunctionRef<void(uint32_t token, const Rows& rows)> visit) const;
  absl::StatusOr<uint32_t> NextSet(const StepKey& session);
  const StructureSummary* Structure(uint32_t run, uint64_t id);
  // Makes tiles of these passes and deletes their rows, with one write. Aborted: the rows have changed meanwhile, or
  // the tiler is stopping; nothing was written, and the next look finds what is there then.
  absl::Status WriteSet(const Notes& notes);
  absl::Status AddPass(const Note& note, Set& set);
  absl::Status AddTiles(const StepKey& session, Set& set);
  // Adds where the passes lie now, and that steps without rows wait no longer.
  void AddPlaces(const Notes& notes, Set& set);
  // Has the next look read these steps anew.
  void Forget(const Notes& notes);
  // Forgets the notes where the status is Aborted. Returns the status.
  absl::Status Failed(const Notes& notes, const absl::Status& status);
  absl::Status GiveUp(const std::vector<StepKey>& steps);
  void Rest(absl::Duration worked);

  Store* const store_;
  const TilerOptions options_;
  absl::flat_hash_map<std::string, Notes> notes_;                                   // by StepKey: what was read once
  absl::flat_hash_map<std::pair<uint32_t, uint64_t>, SharedStructure> structures_;  // by run, id

  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, uint32_t> next_set_;  // by run, epoch

  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  bool running_ ABSL_GUARDED_BY(mu_) = false;
  Counters counters_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace msprobe::server
