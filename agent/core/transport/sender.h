#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/core/doorbell.h"
#include "agent/core/log.h"
#include "agent/core/mutex.h"
#include "agent/core/payload/memory_budget.h"
#include "agent/core/payload/session_memory.h"
#include "agent/core/queue/fragment_queue.h"
#include "agent/core/transport/connector.h"
#include "agent/core/transport/control.h"
#include "agent/core/transport/ingest_stream.h"
#include "agent/core/transport/outbox.h"
#include "agent/core/transport/packer.h"
#include "agent/core/transport/spool.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

// The task whose payloads are worth a shared file.
inline constexpr char kTaskWithPayloads[] = "tensor";

// SessionCounters as threads share them.
struct AtomicCounters {
  std::atomic<uint64_t> fragments_emitted{0}, fragments_dropped{0}, payloads_dropped{0}, faults{0};
  std::atomic<uint64_t> batches_sent{0}, received_through{0}, durable_through{0}, bytes_sent{0}, bytes_spooled{0};
  std::atomic<bool> connected{false}, spool_full{false}, dump_full{false};
};

// What the sender shares with the session that owns both. All of it outlives the sender.
struct SenderParts {
  FragmentQueue* queue;
  const Dictionary* dictionary;
  std::shared_ptr<SessionMemory> memory;
  std::shared_ptr<MemoryBudget> budget;
  std::shared_ptr<Doorbell> bell;
  const Log* log;
  AtomicCounters* counters;
  ControlMailbox* control;  // null: of a process that is gone, which nobody can ask
  bool shares_memory;       // the server may read payloads from it
};

// The sender thread: packs what the queue holds, keeps it until it is durable (spilling to the spool where memory runs
// short), and sends it, in order and again after every interruption.
//
// What is on its way from a device (Leaf::pending) holds up what stands behind it, and the sender goes on sending
// meanwhile. Whoever waits longer than the bound, or beyond ExpectReadingsUntil, goes without its numbers and bytes,
// marked kFault; from then on nothing is waited for until something comes again.
//
// Exactly once: a batch gets its sequence when it is packed and keeps its bytes; after a Welcome sending begins at
// durable_through + 1; the server ignores what it has. What of the queue is in a batch is given up once the session's
// memory lists that batch, so that whoever takes it over when the process has died goes on exactly there.
//
// Threads: Wait from any; Start and Stop from one.
class Sender {
 public:
  // `hello` without freed_through; its rank and settings are kept up to date from the markers that pass.
  // `reading_bound`: how long one reading may hold up the queue.
  Sender(const SenderParts& parts, v1::Hello hello, Connector connector, Spool spool, bool may_spill,
         absl::Duration reading_bound);
  ~Sender();

  // Before Start: goes on with what a dead process held; its queue and dictionary are restored.
  absl::Status Restore(Outbox::Left left);

  void Start();
  // What is not sent then is left: in the spool, if there may be one and it has room, else in the session's memory.
  // Idempotent.
  void Stop(absl::Duration timeout);

  // A stream is kept open from now on, though there is nothing to send. Threads: any.
  void StayConnected();

  // No reading is waited for after this, from now. Threads: any.
  void ExpectReadingsUntil(absl::Duration from_now);

  // Until the queue's entries up to `entry` are durable and the exports they ask for have come.
  absl::Status Wait(uint64_t entry, absl::Duration timeout);

 private:
  using Clock = Doorbell::Clock;

  struct Waiter {
    explicit Waiter(uint64_t wanted) : entry(wanted) {}
    const uint64_t entry;
    bool done = false;
    std::string missing;
  };
  struct PendingExport {
    uint64_t entry = 0;     // the queue's entry that asked
    bool complete = false;  // asked by the end of the step, not by ExportOpenStep
  };
  struct Upload {
    std::string hash;
    uint64_t offset = 0;
  };

  void Run();
  Clock::time_point Drain(Clock::time_point now);
  // Packs what was taken, as far as readings have come; gives the time at which to look again.
  Clock::time_point PackTaken(Clock::time_point now);
  bool PackFront(Clock::time_point now);  // false: something is under way
  // Whether nothing of reader_'s fragment is under way any more.
  bool Settle(Clock::time_point now);
  void PackMarker(std::string_view serialized);
  void CutBatch();
  // Gives back the chunks whose last entry is in a batch.
  void GiveBackChunks();
  void Spill();

  void TendStream(Clock::time_point now);
  void HandleMessage(const v1::ServerMessage& message);
  void HandleWelcome(const v1::Welcome& welcome);
  void HandleVerdict(const v1::PayloadVerdict& verdict);
  void HandleExported(const v1::StepExported& exported);
  void HandleControl(const v1::ControlCommand& command);
  void HandleDumpRoom(const v1::DumpRoom& room);
  // Says how the program stands, where somebody has asked on this stream and something is new.
  void SendReport();
  void StreamEnded(Clock::time_point now, const grpc::Status& status);
  void ForgetStream();
  void TellServerItLostBatches();
  void ReplaceByGap(uint64_t sequence);

  void Pump();
  bool SendBatch();
  bool SendChunk();
  // Several in one message: what lies in shared memory, and what is small. `part` is the first.
  bool SendChunks(Outbox::PayloadPart part);
  bool IsLight(const Outbox::PayloadPart& part) const;
  // The next payload that is wanted and held. False: there is none, or it has to wait.
  bool BeginUpload();
  // What comes next of upload_. Null: as BeginUpload says.
  std::optional<Outbox::PayloadPart> NextPart();
  // The part is on its way: upload_ goes on behind it.
  void Passed(const Outbox::PayloadPart& part);
  void Sent(size_t bytes);

  void AnswerWaiters();
  std::string Missing(uint64_t entry) const;
  void Publish();
  // Notes in dump_path/INCOMPLETE what nothing keeps, and gives words for it.
  std::string NoteLoss(const Outbox::Counts& lost) const;
  // At the end: what becomes of what no server has.
  void LeaveOrRemove();
  void CloseStream();

  const SenderParts parts_;
  const bool may_spill_;
  const Clock::duration reading_bound_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> stays_connected_{false};
  std::atomic<Clock::time_point> readings_end_{Clock::time_point::max()};
  Clock::duration close_timeout_{};  // set before stop_

  // The rest up to mu_ belongs to the thread.
  v1::Hello hello_;
  Connector connector_;
  Spool spool_;
  Packer packer_;
  Outbox outbox_;
  uint64_t packed_entries_ = 0;

  std::deque<Chunk> packed_;           // whose last entries are not in a batch yet
  std::deque<Chunk> taken_;            // from the queue; not empty only behind a reading that is under way
  std::optional<ChunkReader> reader_;  // of taken_.front()
  bool settling_ = false;              // reader_'s fragment has something under way
  Clock::time_point settling_since_;
  bool readings_stopped_ = false;  // one did not come in time, and none since
  bool lack_said_ = false;         // of room in the session's memory

  std::unique_ptr<IngestStream> stream_;
  std::vector<std::unique_ptr<IngestStream>> retired_;  // cancelled, not ended yet
  std::string redirect_;                                // where the stream's server says that the session belongs
  bool hello_sent_ = false;
  bool welcomed_ = false;
  Clock::time_point welcome_deadline_;
  bool controlled_ = false;  // a command came on this stream
  uint64_t reported_ = 0;    // version of the last report
  uint64_t next_to_send_ = 1;
  uint64_t received_through_ = 0;
  size_t max_chunk_bytes_ = 0;
  // Said on this stream.
  bool server_takes_chunks_ = false;
  bool server_takes_digests_ = false;
  bool server_reads_memory_ = false;
  bool one_at_a_time_ = false;  // a batch was refused as malformed: find out which
  bool chunk_next_ = false;     // batches and chunks take turns
  std::deque<std::string> wanted_;
  absl::flat_hash_set<std::string> queued_;  // wanted on this stream and not yet stored
  std::optional<Upload> upload_;
  uint64_t bytes_per_second_ = 0;  // 0: no limit
  Clock::time_point throttled_until_ = Clock::time_point::min();

  bool server_exports_ = false;
  std::map<uint32_t, PendingExport> pending_exports_;  // by step
  std::optional<uint32_t> open_step_;

  Mutex mu_;
  CondVar answered_;
  std::list<Waiter> waiters_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::core
