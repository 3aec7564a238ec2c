#include "agent/core/session.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "agent/core/at_fork.h"
#include "agent/core/config/server_access.h"
#include "agent/core/config/server_address.h"
#include "agent/core/embedded/embedded_server.h"
#include "agent/core/environment.h"
#include "agent/core/git_checkout.h"
#include "agent/core/log.h"
#include "agent/core/payload/memory_budget.h"
#include "agent/core/payload/payload_pool.h"
#include "agent/core/payload/session_place.h"
#include "agent/core/pool.h"
#include "agent/core/process_identity.h"
#include "agent/core/queue/dictionary.h"
#include "agent/core/queue/fragment_digest.h"
#include "agent/core/queue/fragment_queue.h"
#include "agent/core/str_cat.h"
#include "agent/core/transport/left/left_sessions.h"
#include "agent/core/transport/sender.h"
#include "agent/core/utf8.h"

namespace msprobe::core {
namespace {

using Outcome = MemoryBudget::Outcome;
using Gap = v1::Marker::Gap;

constexpr char kAgentVersion[] = "0.1.0";
constexpr size_t kLongestFault = 4096;
// How long the end of a process waits until it has sent what earlier processes left.
constexpr absl::Duration kLeftSessions = absl::Seconds(10);
// How often GoesOn is called, and how long a wait may last after it has returned false.
constexpr absl::Duration kAsk = absl::Milliseconds(200);
constexpr absl::Duration kLeave = absl::Seconds(1);

class HeapPayload : public Payload {
 public:
  // Owns bytes that were granted by `budget`.
  HeapPayload(std::shared_ptr<std::byte> bytes, size_t size, std::shared_ptr<MemoryBudget> budget)
      : bytes_(std::move(bytes)), size_(size), budget_(std::move(budget)) {}
  ~HeapPayload() override {
    bytes_.reset();
    budget_->Release(size_);
  }
  std::span<std::byte> bytes() override { return {bytes_.get(), size_}; }

 private:
  std::shared_ptr<std::byte> bytes_;
  const size_t size_;
  const std::shared_ptr<MemoryBudget> budget_;
};

void FillRank(RankLabel rank, v1::Rank* out) {
  out->set_kind(rank.is_rank ? v1::Rank::RANK : v1::Rank::PROCESS);
  out->set_number(rank.number);
}

void FillSettings(const CaptureSettings& settings, v1::CaptureSettings* out) {
  out->set_task(ToUtf8(settings.task));
  out->set_level(ToUtf8(settings.level));
  out->set_summary_mode(ToUtf8(settings.summary_mode));
  out->set_framework(ToUtf8(settings.framework));
  out->set_dump_path(ToUtf8(settings.dump_path));
  out->set_stack_and_construct(settings.stack_and_construct);
  out->set_config_json(ToUtf8(settings.config_json));
  out->set_high_precision(settings.high_precision);
  for (const std::string& cell : settings.compiled_cells) out->add_compiled_cells(ToUtf8(cell));
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return path.empty() || error ? path : absolute.string();
}

v1::Hello MakeHello(const SessionOptions& options) {
  v1::Hello hello;
  hello.set_protocol(1);
  hello.set_session(RandomSessionId());
  hello.set_run(ToUtf8(options.run));
  FillRank(options.rank, hello.mutable_rank());
  hello.set_host(ToUtf8(HostName()));
  hello.set_process_id(static_cast<uint32_t>(getpid()));
  hello.set_process_start_ticks(ProcessStartTicks());
  hello.set_boot_id(BootId());
  FillSettings(options.settings, hello.mutable_settings());
  hello.add_capabilities("redirect");
  hello.set_agent_version(kAgentVersion);
  hello.set_framework_version(ToUtf8(options.framework_version));
  hello.set_program(ToUtf8(options.program));
  hello.add_capabilities("control");
  hello.set_started_unix_us(absl::ToUnixMicros(absl::Now()));
  for (auto& [name, value] : ShownEnvironment(environ)) {
    v1::EnvironmentVariable& variable = *hello.add_environment();
    variable.set_name(std::move(name));
    variable.set_value(std::move(value));
  }
  for (std::string& device : MachineDevices()) hello.add_devices(std::move(device));
  std::optional<GitCheckout> checkout = CheckoutAround(options.program_path);
  if (!checkout) checkout = CheckoutAround(Absolute("."));
  if (checkout) {
    hello.mutable_checkout()->set_commit(std::move(checkout->commit));
    hello.mutable_checkout()->set_branch(std::move(checkout->branch));
  }
  return hello;
}

std::string SpoolDirectory(const SessionOptions& options) {
  if (!options.spool_directory.empty()) return options.spool_directory;
  if (!options.settings.dump_path.empty()) return options.settings.dump_path + "/.msprobe/spool";
  return Cat(TemporaryDirectory(), "/msprobe-", geteuid(), "/spool");
}

SessionOrigin MakeOrigin(const SessionOptions& options, const Route& route) {
  SessionOrigin origin;
  *origin.mutable_hello() = MakeHello(options);
  origin.mutable_servers()->Assign(route.targets.begin(), route.targets.end());
  origin.set_dump_path(Absolute(options.settings.dump_path));
  origin.set_spool_directory(Absolute(SpoolDirectory(options)));
  const ServerAccess access = route.access.Absolute();
  origin.set_ca(access.ca);
  origin.set_cert(access.cert);
  origin.set_key(access.key);
  origin.set_token_file(access.token_file);
  origin.set_network(NetworkNamespace());
  origin.set_shares_memory(options.shared_memory);
  return origin;
}

// The part of the ceiling for records and payloads. The rest is for everything that is not counted (libraries, threads,
// messages under way, holes in the heap; measured: 20 to 35 MiB).
size_t BudgetOf(size_t ceiling) {
  constexpr size_t kOwn = size_t{40} << 20;
  return ceiling < 2 * kOwn ? std::min(ceiling, kOwn) : ceiling - kOwn;
}

// The part of what BudgetOf leaves that call stacks may take: a program may have any number of them.
size_t StackRoom(size_t ceiling) { return std::max(ceiling / 32, size_t{1} << 20); }

// Room in the session's memory for what the budget does not count: definitions, spare chunks, and rounding.
constexpr size_t kUncounted = size_t{64} << 20;

std::shared_ptr<SessionMemory> MakeMemory(const SessionOptions& options, const SessionOrigin& origin, const Log& log) {
  std::string why_not;
  const size_t room = BudgetOf(options.memory_ceiling_bytes) + kUncounted;
  std::shared_ptr<SessionMemory> memory = MakeSessionMemory(options.session_memory, room, origin, &why_not);
  if (!why_not.empty()) {
    log.Warning(Cat("msprobe: what is captured and not sent yet dies with this process if it is killed: ", why_not));
  }
  return memory;
}

// FailedPrecondition: this process was forked from one that has had a session. To be called before anything of gRPC's:
// a process that is forked while another thread is inside of that finds gRPC's locks taken, and would wait for ever.
absl::Status CheckProcess() {
  static std::atomic<pid_t> first_process{0};
  pid_t nobody = 0;
  if (first_process.compare_exchange_strong(nobody, getpid()) || nobody == getpid()) return absl::OkStatus();
  return absl::FailedPreconditionError("this process was forked from one that has had a session");
}

// The parts of a session, in one object, so that a forked child can abandon all of them.
struct Parts {
  Parts(const SessionOptions& options, const SessionOrigin& origin, const Route& route)
      : bell(std::make_shared<Doorbell>()),
        budget(std::make_shared<MemoryBudget>(
            BudgetOf(options.memory_ceiling_bytes), options.loss_policy, options.stall_bound,
            [bell = bell] { bell->Ring(); }, options.interrupted)),
        memory(MakeMemory(options, origin, log)),
        pool(std::make_shared<PayloadPool>(budget, memory)),
        dictionary(memory, StackRoom(options.memory_ceiling_bytes)),
        queue(bell.get(), memory),
        control([bell = bell] { bell->Ring(); }),
        name(ToHex(origin.hello().session())) {
    Spool spool(origin.spool_directory(), name, options.spool_quota_bytes, origin.SerializeAsString());
    sender.emplace(SenderParts{.queue = &queue,
                               .dictionary = &dictionary,
                               .memory = memory,
                               .budget = budget,
                               .bell = bell,
                               .log = &log,
                               .counters = &counters,
                               .control = &control,
                               .shares_memory = options.shared_memory && memory->outlives()},
                   origin.hello(), Connector(route, bell, &log), std::move(spool),
                   options.loss_policy == LossPolicy::kSpool, options.reading_bound);
    left_sessions.emplace(
        origin.spool_directory(), options.server_binary, [route] { return route; }, &log);
    log.SetRank(options.rank);
  }

  Log log;
  const std::shared_ptr<Doorbell> bell;
  const std::shared_ptr<MemoryBudget> budget;
  const std::shared_ptr<SessionMemory> memory;
  const std::shared_ptr<PayloadPool> pool;
  Dictionary dictionary;
  FragmentQueue queue;
  ControlMailbox control;
  const std::string name;
  AtomicCounters counters;
  std::optional<Sender> sender;
  std::optional<LeftSessions> left_sessions;
};

class StreamingSession : public Session, public Controlled {
 public:
  StreamingSession(std::unique_ptr<Parts> parts, LossPolicy policy)
      : process_(getpid()), policy_(policy), parts_(std::move(parts)) {}

  ~StreamingSession() override {
    if (!abandoned_ && getpid() == process_) {
      Close(false, absl::ZeroDuration()).IgnoreError();
    } else {
      [[maybe_unused]] Parts* const left_alone = parts_.release();
    }
  }

  StructureId DefineStructure(const Structure& structure) override {
    return abandoned_ || closed_ ? 0 : parts_->dictionary.DefineStructure(structure);
  }
  StackId DefineStack(std::span<const Frame> frames) override {
    if (abandoned_ || closed_) return 0;
    const StackId id = parts_->dictionary.DefineStack(frames);
    if (id == 0 && !lacks_stacks_.exchange(true)) {
      constexpr std::string_view kNoRoom =
          "call stacks have taken their share of memory_ceiling_mb; records with further ones come without a stack";
      parts_->log.Warning(Cat("msprobe: ", kNoRoom));
      ReportFault(0, "stack", kNoRoom);
    }
    return id;
  }
  ParentId DefineParent(std::string_view full_name) override {
    return abandoned_ || closed_ ? 0 : parts_->dictionary.DefineParent(full_name);
  }

  std::shared_ptr<Payload> AllocatePayload(size_t size) override {
    return Allocate(size, [&] { return parts_->pool->Make(size); });
  }
  std::shared_ptr<Payload> AllocatePayload(size_t size, const PayloadMemory& allocate) override {
    return Allocate(size, [&]() -> std::shared_ptr<Payload> {
      std::shared_ptr<std::byte> bytes = allocate(std::max<size_t>(size, 1));
      if (bytes == nullptr) return nullptr;
      return MakePooled<HeapPayload>(std::move(bytes), size, parts_->budget);
    });
  }

  void Emit(const Fragment& fragment) override {
    if (abandoned_ || closed_) return;
    ++parts_->counters.fragments_emitted;
    const Outcome outcome = parts_->budget->Acquire(EncodedSize(fragment));
    if (outcome == Outcome::kGranted) {
      Fragment digested = fragment;
      digested.digest = DigestAtCapture(fragment, parts_->dictionary);
      parts_->queue.Append(digested);
      return;
    }
    const auto payloads = static_cast<uint64_t>(std::count_if(
        fragment.leaves.begin(), fragment.leaves.end(), [](const Leaf& leaf) { return leaf.payload != nullptr; }));
    ++parts_->counters.fragments_dropped;
    parts_->counters.payloads_dropped += payloads;
    if (!lacks_records_.exchange(true)) {
      parts_->log.Warning(Cat("msprobe: records are left out, from step ", fragment.step, " on: those that are not at ",
                              "the server yet fill memory_ceiling_mb. What lacks records says so."));
    }
    parts_->queue.AddLoss({.step = fragment.step, .fragments = 1, .payloads = payloads, .reason = Reason(outcome)});
  }

  void EndStep(uint32_t step) override {
    v1::Marker marker;
    marker.mutable_step_end()->set_step(step);
    MarkEnd(marker);
  }
  void DiscardStep(uint32_t step) override {
    v1::Marker marker;
    marker.mutable_step_discarded()->set_step(step);
    MarkEnd(marker);
  }
  void ExportOpenStep(uint32_t step) override {
    v1::Marker marker;
    marker.mutable_export_open_step()->set_step(step);
    Mark(marker);
  }
  void SetRank(RankLabel rank) override {
    if (abandoned_) return;
    parts_->log.SetRank(rank);
    v1::Marker marker;
    FillRank(rank, marker.mutable_rank_known()->mutable_rank());
    Mark(marker);
  }
  void SetSettings(const CaptureSettings& settings) override {
    v1::Marker marker;
    FillSettings(settings, marker.mutable_settings_changed()->mutable_settings());
    Mark(marker);
  }
  void NoteTokens(uint32_t step, uint32_t token, const TokenSpan& span) override {
    if (parts_->budget->used() >= parts_->budget->ceiling()) return;  // for the same reason as in ReportFault
    v1::Marker marker;
    v1::Marker::TokenSpan* out = marker.mutable_token_span();
    out->set_step(step);
    out->set_token(token);
    out->set_request(ToUtf8(span.request));
    out->set_first_position(span.first_position);
    out->set_last_position(span.last_position);
    out->set_first_row(span.first_row);
    out->set_counted(span.counted);
    Mark(marker);
  }
  void ReportFault(uint32_t step, std::string_view where, std::string_view message) override {
    if (abandoned_) return;
    ++parts_->counters.faults;
    // Faults may be as frequent as records, so without room they are only counted.
    if (parts_->budget->used() >= parts_->budget->ceiling()) return;
    v1::Marker marker;
    marker.mutable_fault()->set_step(step);
    marker.mutable_fault()->set_where(ToUtf8(where.substr(0, kLongestFault)));
    marker.mutable_fault()->set_message(ToUtf8(message.substr(0, kLongestFault)));
    Mark(marker);
  }

  using Session::Close;
  using Session::Wait;

  absl::Status Wait(absl::Duration timeout, const GoesOn& goes_on) override {
    if (abandoned_) return absl::FailedPreconditionError("this process was forked from the capturing one");
    if (closed_) return absl::OkStatus();
    const uint64_t entry = parts_->queue.Flush();
    return AskedMeanwhile(timeout, goes_on, [&](absl::Duration slice) { return parts_->sender->Wait(entry, slice); });
  }

  absl::Status Close(bool clean, absl::Duration timeout, const GoesOn& goes_on) override {
    if (abandoned_ || closed_.exchange(true)) return absl::OkStatus();
    absl::Time deadline = absl::Now() + timeout;
    const GoesOn ask = [&](std::string_view missing) {
      if (goes_on == nullptr || goes_on(missing)) return true;
      deadline = std::min(deadline, absl::Now() + kLeave);
      return false;
    };
    parts_->budget->StopWaiting();
    // The second half of the time is for sending what is then packed.
    parts_->sender->ExpectReadingsUntil(timeout / 2);
    absl::Status status;
    // A session that has emitted nothing was never announced to a server.
    if (announced_ || parts_->queue.Flush() > 0) {
      v1::Marker marker;
      marker.mutable_session_end()->set_clean(clean);
      parts_->queue.AppendMarker(marker);
      const uint64_t entry = parts_->queue.Flush();
      status = AskedMeanwhile(timeout, ask, [&](absl::Duration slice) { return parts_->sender->Wait(entry, slice); });
    }
    parts_->sender->Stop(deadline - absl::Now());
    AskedMeanwhile(std::min(deadline - absl::Now(), kLeftSessions), ask, [&](absl::Duration slice) {
      return parts_->left_sessions->Await(slice)
                 ? absl::OkStatus()
                 : absl::DeadlineExceededError("what earlier programs left is not sent");
    }).IgnoreError();
    parts_->left_sessions->Stop();
    return status;
  }

  ControlMailbox& control() override { return parts_->control; }
  void StayConnected() override {
    if (abandoned_ || closed_) return;
    announced_ = true;
    parts_->sender->StayConnected();
  }

  SessionCounters counters() const override {
    SessionCounters result;
    if (abandoned_) return result;
    const AtomicCounters& from = parts_->counters;
    result.fragments_emitted = from.fragments_emitted;
    result.fragments_dropped = from.fragments_dropped;
    result.payloads_dropped = from.payloads_dropped;
    result.faults = from.faults;
    result.batches_sent = from.batches_sent;
    result.received_through = from.received_through;
    result.durable_through = from.durable_through;
    result.bytes_sent = from.bytes_sent;
    result.bytes_spooled = from.bytes_spooled;
    result.connected = from.connected;
    result.dump_full = from.dump_full;
    return result;
  }

 private:
  // Calls wait(longest time) until it returns something other than DeadlineExceeded, `timeout` is over, or goes_on
  // returns false. Returns its last result.
  template <typename WaitFor>
  static absl::Status AskedMeanwhile(absl::Duration timeout, const GoesOn& goes_on, WaitFor&& wait) {
    const absl::Time deadline = absl::Now() + timeout;
    while (true) {
      const absl::Duration left = deadline - absl::Now();
      absl::Status status = wait(goes_on == nullptr ? left : std::min(left, kAsk));
      if (!absl::IsDeadlineExceeded(status) || goes_on == nullptr || absl::Now() >= deadline ||
          !goes_on(std::string(status.message()))) {
        return status;
      }
    }
  }

  // Takes room from the budget and returns the payload that `make` makes with it. Null: no room, which is counted.
  template <typename Make>
  std::shared_ptr<Payload> Allocate(size_t size, Make&& make) {
    if (abandoned_ || closed_) return nullptr;
    const Outcome outcome = parts_->budget->Acquire(size);
    if (outcome == Outcome::kGranted) {
      if (std::shared_ptr<Payload> payload = make()) return payload;
      parts_->budget->Release(size);
    }
    ++parts_->counters.payloads_dropped;
    Loss loss;
    loss.payloads = 1;
    loss.reason = outcome == Outcome::kGranted ? Gap::DROPPED : Reason(outcome);
    parts_->queue.AddLoss(loss);
    return nullptr;
  }

  Gap::Reason Reason(Outcome outcome) const {
    if (outcome == Outcome::kTooLarge) return Gap::PAYLOAD_TOO_LARGE;
    if (outcome == Outcome::kDropped) return Gap::DROPPED;
    return policy_ == LossPolicy::kSpool && parts_->counters.spool_full ? Gap::SPOOL_FULL : Gap::STALL_EXPIRED;
  }

  void Mark(const v1::Marker& marker) {
    if (abandoned_ || closed_) return;
    parts_->queue.AppendMarker(marker);
  }

  // Of a step.
  void MarkEnd(const v1::Marker& marker) {
    if (abandoned_ || closed_) return;
    parts_->queue.AppendMarker(marker);
    parts_->budget->NextStep();
  }

  const pid_t process_;
  const LossPolicy policy_;
  std::atomic<bool> abandoned_{false};
  std::atomic<bool> closed_{false};
  std::atomic<bool> announced_{false};
  std::atomic<bool> lacks_stacks_{false};
  std::atomic<bool> lacks_records_{false};
  std::unique_ptr<Parts> parts_;
  // A child may begin while another thread holds a lock in here, which nobody would give up there.
  const AtFork at_fork_{[this] { abandoned_ = true; }};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Session>> Session::Open(const SessionOptions& options) {
  // Debian builds Abseil for debugging: each lock of an absl::Mutex searches for cycles of locks, under one lock for
  // the whole process. gRPC's threads lock thousands of times.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  if (options.run.empty()) return absl::InvalidArgumentError("run is invalid: it must not be empty");
  Route route;
  if (!options.server.empty()) {
    absl::StatusOr<std::vector<std::string>> parsed = ParseServerAddresses(options.server);
    if (!parsed.ok()) return parsed.status();
    route.targets = *std::move(parsed);
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    // Only the paths of secrets are left, never their content.
    if (absl::Status status = options.access.Check(route.targets); !status.ok()) return status;
    route.access = options.access;
  } else {
    if (options.settings.dump_path.empty()) {
      return absl::InvalidArgumentError("without a server the session needs a dump_path for the embedded one");
    }
    absl::StatusOr<EmbeddedServer> prepared =
        EmbeddedServer::Prepare(options.settings.dump_path, options.server_binary, options.dump_quota_bytes);
    if (!prepared.ok()) return prepared.status();
    route.embedded = *std::move(prepared);
  }
  if (absl::Status status = CheckProcess(); !status.ok()) return status;
  auto parts = std::make_unique<Parts>(options, MakeOrigin(options, route), route);
  parts->left_sessions->Start(parts->name);
  try {
    parts->sender->Start();
  } catch (const std::system_error& error) {
    return absl::FailedPreconditionError(Cat("cannot start the sender thread: ", error.what()));
  }
  return std::make_unique<StreamingSession>(std::move(parts), options.loss_policy);
}

}  // namespace msprobe::core
