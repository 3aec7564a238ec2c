#include "server/ingest/session/sessions.h"

#include <string>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "server/format/cat.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

constexpr size_t kLongestRunName = 255;
constexpr size_t kLongestText = 4096;
constexpr size_t kLongestConfig = size_t{1} << 20;
constexpr int kMostVariables = 1024;
constexpr size_t kLongestEnvironment = size_t{1} << 18;

absl::Status CheckHello(const v1::Hello& hello) {
  if (hello.protocol() != 1) {
    return absl::FailedPreconditionError(Cat("hello.protocol is ", hello.protocol(), ", this server speaks 1"));
  }
  if (hello.session().size() != kIdBytes) {
    return absl::InvalidArgumentError(Cat("hello.session has ", hello.session().size(), " bytes, not ", kIdBytes));
  }
  if (hello.run().empty() || hello.run().size() > kLongestRunName) {
    return absl::InvalidArgumentError(
        Cat("hello.run has ", hello.run().size(), " bytes, allowed are 1 to ", kLongestRunName));
  }
  for (const auto& [field, text, longest] :
       {std::tuple("host", &hello.host(), kLongestText),
        {"boot_id", &hello.boot_id(), kLongestText},
        {"agent_version", &hello.agent_version(), kLongestText},
        {"framework_version", &hello.framework_version(), kLongestText},
        {"program", &hello.program(), kLongestText},
        {"checkout.commit", &hello.checkout().commit(), kLongestText},
        {"checkout.branch", &hello.checkout().branch(), kLongestText},
        {"settings.dump_path", &hello.settings().dump_path(), kLongestText},
        {"settings.config_json", &hello.settings().config_json(), kLongestConfig}}) {
    if (text->size() > longest) {
      return absl::InvalidArgumentError(Cat("hello.", field, " has ", text->size(), " bytes, at most ", longest));
    }
  }
  if (hello.environment_size() > kMostVariables || hello.devices_size() > kMostVariables) {
    return absl::InvalidArgumentError(Cat("hello.environment has ", hello.environment_size(),
                                          " variables and hello.devices ", hello.devices_size(), ", at most ",
                                          kMostVariables, " each"));
  }
  size_t environment = 0;
  for (const auto& variable : hello.environment()) environment += variable.name().size() + variable.value().size();
  for (const std::string& device : hello.devices()) environment += device.size();
  if (environment > kLongestEnvironment) {
    return absl::InvalidArgumentError(
        Cat("hello.environment and hello.devices have ", environment, " bytes, at most ", kLongestEnvironment));
  }
  size_t cells = 0;
  for (const std::string& cell : hello.settings().compiled_cells()) cells += cell.size();
  if (cells > kLongestConfig) {
    return absl::InvalidArgumentError(
        Cat("hello.settings.compiled_cells has ", cells, " bytes, at most ", kLongestConfig));
  }
  if (!RankFits(hello.rank())) {
    return absl::InvalidArgumentError(Cat("hello.rank.number is ", hello.rank().number(), ", at most 2147483647"));
  }
  return absl::OkStatus();
}

// A user of a session, until it is destroyed.
class SessionUse final : public Session {
 public:
  SessionUse(std::shared_ptr<LiveSession> session, LiveSession::User user)
      : session_(std::move(session)), user_(std::move(user)) {}
  ~SessionUse() override { session_->Detach(); }
  SessionUse(const SessionUse&) = delete;
  SessionUse& operator=(const SessionUse&) = delete;

  v1::Welcome welcome() const override { return user_.welcome; }
  absl::StatusOr<v1::PayloadVerdict> Apply(const v1::Batch& batch) override {
    return session_->Apply(user_.number, batch);
  }
  absl::StatusOr<v1::PayloadVerdict> AddPayload(const v1::PayloadChunk& chunk, std::string_view content) override {
    return session_->AddPayload(user_.number, chunk, content);
  }
  absl::StatusOr<size_t> AddWhole(std::span<const WholePayload> payloads, v1::PayloadVerdict& verdict) override {
    return session_->AddWhole(user_.number, payloads, verdict);
  }
  uint64_t received_through() const override { return session_->received_through(); }
  uint64_t durable_through() const override { return session_->durable_through(); }
  absl::Status AwaitDurable(absl::Duration timeout) override { return session_->AwaitDurable(timeout); }

 private:
  const std::shared_ptr<LiveSession> session_;
  const LiveSession::User user_;
};

}  // namespace

Sessions::Sessions(Store* store, Metrics* metrics, SessionObserver* observer, SessionsOptions options)
    : options_(std::move(options)) {
  context_.store = store;
  context_.metrics = metrics;
  context_.observer = observer;
  context_.capabilities = options_.capabilities;
  context_.version = options_.version;
  context_.admit = options_.admit;
  context_.payload_arrived = [this](const std::string& hash) { PayloadArrived(hash); };
}

Sessions::~Sessions() {
  // Callbacks run in order: behind this one, none of a session's is left.
  absl::Status status = context_.store->database().AwaitDurable(absl::InfiniteDuration());
  if (!status.ok()) LogError("{}", status.ToString());
}

absl::Status Sessions::Recover() {
  auto rows = context_.store->catalogue().Sessions();
  if (!rows.ok()) return rows.status();
  for (storage::SessionRow& row : *rows) {
    if (row.state() == storage::SessionRow::LOST) continue;
    auto session = LiveSession::Load(context_, row, false);
    if (!session.ok()) return session.status();
    if (!(*session)->unfinished()) continue;
    absl::MutexLock lock(&mu_);
    sessions_[row.session()] = *session;
    any_ever_ = true;
  }
  return absl::OkStatus();
}

absl::Status CheckOwner(const std::string& run, const std::string& owner, const Caller& caller) {
  if (owner.empty() || caller.is_admin || caller.identity == owner) return absl::OkStatus();
  return absl::PermissionDeniedError(Cat("run \"", run, "\" belongs to ", owner, ", and this is ",
                                         caller.identity.empty() ? "somebody without a name" : caller.identity,
                                         "; choose another name for the run, or send with a token of the role admin"));
}

absl::StatusOr<std::shared_ptr<Session>> Sessions::OpenSession(const v1::Hello& hello) {
  return OpenStream(hello, {}, {});
}

absl::StatusOr<std::shared_ptr<Session>> Sessions::OpenStream(const v1::Hello& hello,
                                                              std::weak_ptr<SessionListener> listener,
                                                              const Caller& caller) {
  if (absl::Status status = CheckHello(hello); !status.ok()) return status;
  if (absl::Status status = context_.store->database().Writable(); !status.ok()) return status;
  std::shared_ptr<LiveSession> session;
  std::shared_ptr<SessionUse> use;
  {
    absl::MutexLock lock(&mu_);
    if (draining_) return absl::UnavailableError("this server is shutting down; connect again later");
    auto run = context_.store->catalogue().LookUpRun(hello.run());
    if (!run.ok()) return run.status();
    const std::string owner = run->has_value() ? (*run)->owner() : std::string();
    if (absl::Status status = CheckOwner(hello.run(), owner, caller); !status.ok()) return status;
    auto found = sessions_.find(hello.session());
    if (found != sessions_.end() && found->second->users() == 0 && !found->second->unfinished()) {
      sessions_.erase(found);
      found = sessions_.end();
    }
    if (found != sessions_.end()) {
      if (found->second->row().hello().run() != hello.run()) {
        return absl::FailedPreconditionError(
            Cat("session ", Hex(hello.session()), " belongs to run \"", found->second->row().hello().run(), "\""));
      }
      session = found->second;
    } else {
      if (sessions_.size() >= options_.max_open) {
        return absl::ResourceExhaustedError(
            Cat("this server has ", sessions_.size(), " open sessions, which is its limit (--max_sessions)"));
      }
      if (absl::Status status = CheckRanks(hello); !status.ok()) return status;
      auto row = context_.store->catalogue().RegisterSession(hello, caller.identity);
      if (!row.ok()) return row.status();
      auto loaded = LiveSession::Load(context_, *std::move(row), true);
      if (!loaded.ok()) return loaded.status();
      session = sessions_[hello.session()] = *loaded;
    }
    any_ever_ = true;
    if (options_.admit) {
      if (absl::Status status = options_.admit(session->row().run()); !status.ok()) return status;
    }
    auto user = session->Attach(std::move(listener), hello.freed_through());
    if (!user.ok()) return user.status();
    if (absl::Status status = AddUnexported(hello, *session, user->welcome); !status.ok()) return status;
    use = std::make_shared<SessionUse>(session, *std::move(user));
  }
  // From here on nothing of an earlier user changes the session, and what one has left is made durable: it was read
  // from the store, or is in memory, perhaps after a sync that failed.
  if (absl::Status status = context_.store->database().AwaitDurable(absl::Seconds(30)); !status.ok()) return status;
  session->NoteDurable(use->welcome().durable_through());
  LogInfo("session {} of run {} ({}, process {} on {}) is here, at batch {}", Hex(hello.session()), hello.run(),
          RankName(session->row().hello().rank()), hello.process_id(), hello.host(), session->received_through());
  if (context_.observer != nullptr) {
    for (uint32_t step : hello.awaited_exports()) context_.observer->OnExportAwaited(hello.session(), step);
    const v1::Welcome welcome = use->welcome();
    for (uint32_t step : welcome.unexported_steps()) context_.observer->OnExportAwaited(hello.session(), step);
  }
  return use;
}

absl::Status Sessions::AddUnexported(const v1::Hello& hello, const LiveSession& session, v1::Welcome& welcome) const {
  if (!absl::c_linear_search(hello.capabilities(), "left") || !absl::c_linear_search(welcome.capabilities(), "export"))
    return absl::OkStatus();
  const storage::SessionRow row = session.row();
  auto steps = context_.store->steps().Of(row.run());
  if (!steps.ok()) return steps.status();
  for (const auto& [key, step] : *steps) {
    if (key.epoch != row.epoch() || step.exported()) continue;
    // One that has ended and lacks payloads is open still. The end of one that is awaited is on its way.
    const bool ends = step.ended() || step.state() != v1::StepSummary::OPEN ||
                      absl::c_linear_search(hello.awaited_exports(), key.step);
    if (ends) welcome.add_unexported_steps(key.step);
  }
  return absl::OkStatus();
}

absl::Status Sessions::CheckRanks(const v1::Hello& hello) {
  if (options_.max_ranks == 0) return absl::OkStatus();
  auto run = context_.store->catalogue().LookUpRun(hello.run());
  if (!run.ok()) return run.status();
  if (!run->has_value()) return absl::OkStatus();
  std::set<uint32_t>& ranks = ranks_[(*run)->number()];
  const uint32_t rank = RankCode(hello.rank());
  if (ranks.size() >= options_.max_ranks || ranks.empty()) {
    // Processes have become ranks since, and sessions were registered before this server began.
    auto rows = context_.store->catalogue().Sessions((*run)->number());
    if (!rows.ok()) return rows.status();
    ranks.clear();
    for (const storage::SessionRow& row : *rows) ranks.insert(RankCode(row.hello().rank()));
  }
  if (!ranks.contains(rank) && ranks.size() >= options_.max_ranks) {
    return absl::ResourceExhaustedError(
        Cat("run \"", hello.run(), "\" has ", ranks.size(), " ranks on this server, which is its limit (--max_ranks)"));
  }
  ranks.insert(rank);
  return absl::OkStatus();
}

std::shared_ptr<LiveSession> Sessions::Find(const std::string& session) const {
  absl::MutexLock lock(&mu_);
  auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second;
}

absl::StatusOr<std::shared_ptr<LiveSession>> Sessions::FindOrLoad(const std::string& session) {
  absl::MutexLock lock(&mu_);
  if (auto found = sessions_.find(session); found != sessions_.end()) return found->second;
  auto row = context_.store->database().Find<storage::SessionRow>(SessionKey(session));
  if (!row.ok()) return row.status();
  if (!row->has_value()) return absl::NotFoundError(Cat("no session ", Hex(session)));
  auto loaded = LiveSession::Load(context_, **row, false);
  if (!loaded.ok()) return loaded.status();
  return sessions_[session] = *loaded;
}

std::vector<std::shared_ptr<LiveSession>> Sessions::All() const {
  absl::MutexLock lock(&mu_);
  std::vector<std::shared_ptr<LiveSession>> all;
  for (const auto& [id, session] : sessions_) all.push_back(session);
  return all;
}

bool Sessions::IsGone(const LiveSession& session) const {
  const storage::SessionRow row = session.row();
  switch (options_.check_process ? options_.check_process(row.hello()) : ProcessState::kUnknown) {
    case ProcessState::kAlive:
      return false;
    case ProcessState::kGone:
      return true;
    case ProcessState::kUnknown:
      return context_.store->Now() - session.detached_since() >= options_.grace;
  }
  return false;
}

void Sessions::Tick() {
  size_t open = 0;
  LiveSession::Backlog backlog;
  for (const std::shared_ptr<LiveSession>& session : All()) {
    const LiveSession::Backlog mine = session->backlog();
    backlog.batches += mine.batches;
    backlog.payloads += mine.payloads;
    open += session->is_open();
    const absl::Time since = session->detached_since();
    if (session->users() > 0 || !session->unfinished() || !IsGone(*session)) continue;
    absl::MutexLock lock(&mu_);  // nobody comes now; somebody may have come since the question, and gone again
    if (session->users() > 0 || session->detached_since() != since) continue;
    const storage::SessionRow row = session->row();
    LogWarning("session {} of run {} ({}) is lost", Hex(row.session()), row.hello().run(),
               RankName(row.hello().rank()));
    if (absl::Status status = session->Lose(); !status.ok()) LogError("{}", status.ToString());
  }
  context_.metrics->Set(Metric::kOpenSessions, static_cast<double>(open));
  context_.metrics->Set(Metric::kWaitingBatches, static_cast<double>(backlog.batches));
  context_.metrics->Set(Metric::kPayloadsWaiting, static_cast<double>(backlog.payloads));
  absl::MutexLock lock(&mu_);
  for (auto at = sessions_.begin(); at != sessions_.end();) {
    // Held by this map alone, so nobody is about to use it.
    const bool idle = at->second.use_count() == 1 && at->second->users() == 0 && !at->second->unfinished();
    at = idle ? sessions_.erase(at) : std::next(at);
  }
}

void Sessions::Drain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
}

size_t Sessions::active() const {
  size_t active = 0;
  for (const std::shared_ptr<LiveSession>& session : All()) active += session->users() > 0 || session->unfinished();
  return active;
}

bool Sessions::any_ever() const {
  absl::MutexLock lock(&mu_);
  return any_ever_;
}

std::vector<std::shared_ptr<LiveSession>> Sessions::Connected() const {
  std::vector<std::shared_ptr<LiveSession>> found;
  for (std::shared_ptr<LiveSession>& session : All()) {
    if (session->users() > 0) found.push_back(std::move(session));
  }
  return found;
}

std::vector<std::shared_ptr<LiveSession>> Sessions::ConnectedTo(uint32_t run) const {
  std::vector<std::shared_ptr<LiveSession>> found;
  for (std::shared_ptr<LiveSession>& session : Connected()) {
    if (session->row().run() == run) found.push_back(std::move(session));
  }
  return found;
}

bool Sessions::has_users_in(uint32_t run) const {
  for (const std::shared_ptr<LiveSession>& session : All()) {
    if (session->users() > 0 && session->row().run() == run) return true;
  }
  return false;
}

void Sessions::PayloadArrived(const std::string& hash) {
  for (const std::shared_ptr<LiveSession>& session : All()) {
    if (absl::Status status = session->ResolvePayload(hash); !status.ok()) LogError("{}", status.ToString());
  }
}

}  // namespace msprobe::server
