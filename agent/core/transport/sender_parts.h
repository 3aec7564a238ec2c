#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "agent/core/doorbell.h"
#include "agent/core/log.h"
#include "agent/core/payload/memory_budget.h"
#include "agent/core/payload/session_memory.h"
#include "agent/core/queue/dictionary.h"
#include "agent/core/queue/fragment_queue.h"
#include "agent/core/transport/control.h"

namespace msprobe::core {

// SessionCounters as threads share them.
struct AtomicCounters {
  std::atomic<uint64_t> fragments_emitted{0}, fragments_dropped{0}, payloads_dropped{0}, faults{0};
  std::atomic<uint64_t> batches_sent{0}, received_through{0}, durable_through{0}, bytes_sent{0}, bytes_spooled{0};
  std::atomic<uint64_t> steps_exported{0};  // reports of it, errors too
  std::atomic<bool> connected{false}, spool_full{false}, dump_full{false};
};

// The objects that a sender shares with the session that owns it. All of them outlive the sender.
struct SenderParts {
  FragmentQueue* queue;
  const Dictionary* dictionary;
  std::shared_ptr<SessionMemory> memory;
  std::shared_ptr<MemoryBudget> budget;
  std::shared_ptr<Doorbell> bell;
  const Log* log;
  AtomicCounters* counters;
  ControlMailbox* control;  // null: the process is gone, so nobody can obey a command
  bool shares_memory;       // the server may read payloads from the session's memory
};

}  // namespace msprobe::core
