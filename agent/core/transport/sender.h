#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "agent/core/doorbell.h"
#include "agent/core/transport/awaited_exports.h"
#include "agent/core/transport/outbox/outbox.h"
#include "agent/core/transport/outbox/spool.h"
#include "agent/core/transport/packing/packer.h"
#include "agent/core/transport/packing/queue_drain.h"
#include "agent/core/transport/sender_parts.h"
#include "agent/core/transport/stream/connection.h"
#include "agent/core/transport/stream/connector.h"
#include "agent/core/transport/upload/batch_upload.h"
#include "agent/core/transport/upload/payload_upload.h"
#include "agent/core/transport/waiters.h"
#include "msprobe/v1/ingest.pb.h"

namespace msprobe::core {

inline constexpr char kTaskWithPayloads[] = "tensor";
// Whether the records of a task have payloads: these are worth a shared file, and hold memory until they are sent.
inline bool HasPayloads(std::string_view task) { return task == kTaskWithPayloads || task == "check"; }

// A session's thread: packs what the queue holds (QueueDrain), keeps it until the server has made it durable (Outbox,
// and the Spool where memory runs short), and sends it in order (BatchUpload, PayloadUpload), again after every
// interruption (Connection).
//
// Exactly once: a batch gets its sequence when it is packed, and keeps its bytes. After a Welcome, sending begins at
// durable_through + 1, and the server ignores a batch that it has.
//
// Threads: Wait, StayConnected and ExpectReadingsUntil from any; the others from one.
class Sender {
 public:
  // `hello` without freed_through; the sender keeps its rank and settings up to date as their markers pass.
  // `may_spill`: the spool may take what memory cannot. `reading_bound`: how long one reading may hold up the queue.
  Sender(const SenderParts& parts, v1::Hello hello, Connector connector, Spool spool, bool may_spill,
         absl::Duration reading_bound);
  ~Sender();

  // Before Start: goes on with what a dead process held. The queue and the dictionary have been restored already.
  absl::Status Restore(Outbox::Left left);
  // After Restore, for a session that was left: Wait also waits until the server has exported the steps that had ended.
  void AwaitExportsOfLeft();

  void Start();
  // The rest that has not been sent stays for the next process: in the spool, where that may be used and has room, else
  // in the session's memory. `timeout` bounds the wait for the server to end the stream. Idempotent.
  void Stop(absl::Duration timeout);

  // From now on a stream is kept open even while there is nothing to send.
  void StayConnected();

  // After `from_now` no reading is waited for.
  void ExpectReadingsUntil(absl::Duration from_now);

  // Waits until the entries of the queue up to `entry` are durable and the exports that they ask for are done.
  // DeadlineExceeded says what is missing; DataLoss, once, which of these exports there will not be.
  absl::Status Wait(uint64_t entry, absl::Duration timeout);

 private:
  using Clock = Doorbell::Clock;

  void Run();
  // One round of the thread. Gives when the next one is due, unless the bell rings before.
  Clock::time_point Round(Clock::time_point now);
  Clock::time_point DrainQueue(Clock::time_point now);
  void Packed(const v1::Marker& marker);
  // Moves the oldest batches to the spool where memory runs short.
  void Spill();

  Clock::time_point Connect(Clock::time_point now);
  void TendConnection(Clock::time_point now);
  void ForgetStream();
  void Handle(const v1::ServerMessage& message);
  void HandleWelcome(const v1::Welcome& welcome);
  void HandleAck(const v1::Ack& ack);
  void HandleControl(const v1::ControlCommand& command);
  void HandleDumpRoom(const v1::DumpRoom& room);
  void HandleAlarm(const v1::AlarmRaised& alarm);
  // The server has batches up to `durable_through`, and had more.
  void ReportServerLoss(uint64_t durable_through);
  // Puts the gap, and the definitions that the server lacks, into the first batch that can have them, or notes that
  // there is none yet.
  void TellServerLoss();
  // Tells the server how the program stands, where a command came on this stream and something is new.
  void SendReport();
  // Sends batches and payloads, in turns, until the stream or the throttle takes no more.
  void Pump();

  // Unavailable: what is missing. DataLoss: there will be no files of these steps.
  absl::Status Standing(uint64_t entry) const;
  std::string Missing(uint64_t entry) const;
  void Answer();
  void Publish();
  // Says why nothing can be spooled, the first time that this is an error.
  void TellOfSpool(const absl::Status& failure);
  // At the end: what no server has is left for the next process, or lost, and the user is told.
  void LeaveOrRemove();
  // Writes the loss to dump_path/INCOMPLETE, and gives words for it.
  std::string NoteLoss(const Outbox::Counts& lost) const;

  const SenderParts parts_;
  const bool may_spill_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> stays_connected_{false};
  Clock::duration close_timeout_{};  // set before stop_
  Waiters waiters_;

  // The rest belongs to the thread once it runs.
  v1::Hello hello_;
  Spool spool_;
  Packer packer_;
  Outbox outbox_;
  QueueDrain drain_;
  Connection connection_;
  BatchUpload batches_;
  PayloadUpload payloads_;
  bool payload_next_ = false;  // batches and payloads take turns
  AwaitedExports exports_;
  uint64_t lost_through_ = 0;         // where the last loss that the server told of ended, by sequence
  bool loss_untold_ = false;          // TellServerLoss waits for a batch
  std::optional<uint64_t> reported_;  // version of the last report on this stream; absent: nobody has asked for one
  bool spool_told_ = false;           // TellOfSpool has said something
  bool lack_said_ = false;            // that the session's memory lacked room
};

}  // namespace msprobe::core
