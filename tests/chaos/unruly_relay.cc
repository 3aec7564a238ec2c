#include "tests/chaos/unruly_relay.h"

#include <cstdlib>
#include <utility>

#include "absl/time/clock.h"

namespace msprobe::server {
namespace {

constexpr size_t kRecent = 6;  // batches that may be sent once more
constexpr uint64_t kRepeatOneIn = 2;
constexpr uint64_t kMaxMessages = 30;  // of a stream that is to be cut
constexpr uint64_t kMaxHeld = 6;
constexpr uint64_t kHelloHeldOneIn = 5;
constexpr absl::Duration kPatience = absl::Seconds(5);

}  // namespace

UnrulyRelay::UnrulyRelay(const std::string& listen, const std::string& forward, uint64_t seed)
    : server_(v1::Ingest::NewStub(grpc::CreateChannel(forward, grpc::InsecureChannelCredentials()))), random_(seed) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  builder.SetMaxReceiveMessageSize(-1);
  listener_ = builder.BuildAndStart();
  if (listener_ == nullptr) std::abort();
}

UnrulyRelay::~UnrulyRelay() {
  stop_ = true;
  listener_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
  std::vector<std::thread> late;
  {
    absl::MutexLock lock(&mu_);
    late.swap(late_);
  }
  for (std::thread& thread : late) thread.join();
}

void UnrulyRelay::Calm() {
  absl::MutexLock lock(&mu_);
  calm_ = true;
  for (grpc::ServerContext* context : open_) context->TryCancel();  // they may hold what nothing will follow
}

grpc::Status UnrulyRelay::Stream(grpc::ServerContext* context, AgentStream* agent) {
  auto call = std::make_unique<Call>();
  {
    absl::MutexLock lock(&call->mu);
    call->agent = agent;
    call->agent_context = context;
  }
  {
    absl::MutexLock lock(&mu_);
    open_.insert(context);
  }
  call->server = server_->Stream(&call->context);
  call->answers = std::thread([this, &call = *call] { Answer(call); });
  std::deque<v1::AgentMessage> held;
  cuts_ += Forward(*agent, *call, held);
  {
    absl::MutexLock lock(&call->mu);
    call->agent = nullptr;
    call->agent_context = nullptr;
  }
  absl::MutexLock lock(&mu_);
  open_.erase(context);
  late_.emplace_back([this, call = std::move(call), held = std::move(held)] {
    DeliverLate(*call, held);
    call->server->WritesDone();
    call->answers.join();
    call->server->Finish();
  });
  return {grpc::StatusCode::UNAVAILABLE, "cut"};
}

void UnrulyRelay::Answer(Call& call) {
  v1::ServerMessage message;
  while (call.server->Read(&message)) {
    std::string session;
    {
      absl::MutexLock lock(&call.mu);
      if (call.agent != nullptr) call.agent->Write(message);
      session = call.session;
    }
    absl::MutexLock lock(&mu_);
    if (message.has_welcome()) ++welcomed_[session];
  }
  // The server has ended it: because a late hello took the session over, for one.
  absl::MutexLock lock(&call.mu);
  if (call.agent_context != nullptr) call.agent_context->TryCancel();
}

bool UnrulyRelay::Forward(AgentStream& agent, Call& call, std::deque<v1::AgentMessage>& held) {
  uint64_t pass = Draw(kHelloHeldOneIn) == 0 ? 0 : 1 + Draw(kMaxMessages);
  const uint64_t hold = Draw(kMaxHeld);
  std::deque<v1::AgentMessage> recent;
  v1::AgentMessage message;
  while (agent.Read(&message)) {
    if (message.has_hello()) {
      absl::MutexLock lock(&call.mu);
      call.session = message.hello().session();
    }
    if (calm_ && held.empty()) {
      if (!call.server->Write(message)) return false;
      continue;
    }
    if (pass > 0) {
      --pass;
      if (!Send(message, recent, call)) return false;
      continue;
    }
    held.push_back(message);
    if (message.has_hello() || held.size() >= hold) return true;
  }
  return !held.empty();
}

bool UnrulyRelay::Send(const v1::AgentMessage& message, std::deque<v1::AgentMessage>& recent, Call& call) {
  if (!call.server->Write(message)) return false;
  if (!message.has_batch()) return true;
  recent.push_back(message);
  if (recent.size() > kRecent) recent.pop_front();
  if (Draw(kRepeatOneIn) != 0) return true;
  ++duplicates_;
  return call.server->Write(recent[Draw(recent.size())]);
}

void UnrulyRelay::DeliverLate(Call& call, const std::deque<v1::AgentMessage>& held) {
  if (held.empty()) return;
  std::string session;
  {
    absl::MutexLock lock(&call.mu);
    session = call.session;
  }
  const uint64_t welcomed = Welcomed(session);
  if (Draw(3) == 0) {
    absl::SleepFor(absl::Milliseconds(Draw(30)));
  } else {
    absl::MutexLock lock(&mu_);
    auto overtaken = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stop_ || welcomed_[session] > welcomed; };
    mu_.AwaitWithTimeout(absl::Condition(&overtaken), kPatience);
  }
  const bool behind = Welcomed(session) > welcomed;
  for (const v1::AgentMessage& message : held) {
    if (!call.server->Write(message)) return;
    overtaken_ += behind;
  }
}

uint64_t UnrulyRelay::Draw(uint64_t below) {
  absl::MutexLock lock(&mu_);
  return random_() % below;
}

uint64_t UnrulyRelay::Welcomed(const std::string& session) const {
  absl::MutexLock lock(&mu_);
  auto found = welcomed_.find(session);
  return found == welcomed_.end() ? 0 : found->second;
}

}  // namespace msprobe::server
