// Tests the real binary from outside: flags, streams, signals, and the life of an embedded server.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

#include "absl/time/clock.h"
#include "msprobe/v1/control.grpc.pb.h"
#include "msprobe/v1/ingest.grpc.pb.h"
#include "msprobe/v1/query.grpc.pb.h"
#include "server/ingest/scripted/scripted_agent.h"
#include "server/store/disk/scratch_directory.h"

extern char** environ;

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);

// Waits until another process has made the condition true, checking every 10 ms.
bool Eventually(const std::function<bool()>& condition) {
  for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end; absl::SleepFor(absl::Milliseconds(10))) {
    if (condition()) return true;
  }
  return false;
}

std::string ReadFile(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

class Process {
 public:
  Process(std::vector<std::string> arguments, const std::string& log) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Process() {
    if (!Ended()) Kill(SIGKILL), Wait();
  }
  pid_t pid() const { return pid_; }
  void Kill(int signal) { kill(pid_, signal); }
  bool Ended() {
    if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
    return ended_;
  }
  // The exit code, or minus the signal's number, or -1000 if the process does not end.
  int Wait() {
    if (!Eventually([this] { return Ended(); })) return -1000;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
  }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

// A stream whose messages are read on a thread.
class Stream {
 public:
  Stream(const std::string& address, const v1::Hello& hello)
      : stub_(v1::Ingest::NewStub(grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))) {
    context_.set_wait_for_ready(true);
    stream_ = stub_->Stream(&context_);
    v1::AgentMessage message;
    *message.mutable_hello() = hello;
    stream_->Write(message);
    reader_ = std::thread([this] {
      v1::ServerMessage incoming;
      while (stream_->Read(&incoming)) {
        absl::MutexLock lock(&mu_);
        if (incoming.has_welcome()) welcome_ = incoming.welcome();
        if (incoming.has_ack()) durable_ = incoming.ack().durable_through();
        if (incoming.has_step_exported()) exported_.push_back(incoming.step_exported());
      }
      absl::MutexLock lock(&mu_);
      over_ = true;
    });
  }
  ~Stream() {
    if (reader_.joinable()) Break();
  }
  void Send(const v1::Batch& batch) {
    v1::AgentMessage message;
    *message.mutable_batch() = batch;
    stream_->Write(message);
  }
  bool AwaitWelcome() {
    return Await([this] { return welcome_.protocol() == 1; });
  }
  bool AwaitDurable(uint64_t through) {
    return Await([this, through] { return durable_ >= through; });
  }
  bool AwaitExported(size_t count) {
    return Await([this, count] { return exported_.size() >= count; });
  }
  bool AwaitOver() {
    return Await([this] { return over_; });
  }
  grpc::Status Finish() {
    stream_->WritesDone();
    reader_.join();
    return stream_->Finish();
  }
  void Break() {
    context_.TryCancel();
    reader_.join();
    stream_->Finish();
  }
  v1::Welcome welcome() {
    absl::MutexLock lock(&mu_);
    return welcome_;
  }
  std::vector<v1::StepExported> exported() {
    absl::MutexLock lock(&mu_);
    return exported_;
  }

 private:
  bool Await(const std::function<bool()>& condition) {
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&condition), kPatience);
  }
  grpc::ClientContext context_;
  std::unique_ptr<v1::Ingest::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentMessage, v1::ServerMessage>> stream_;
  std::thread reader_;
  absl::Mutex mu_;
  v1::Welcome welcome_;
  uint64_t durable_ = 0;
  bool over_ = false;
  std::vector<v1::StepExported> exported_;
};

class ServerBinaryTest : public testing::Test {
 protected:
  std::unique_ptr<Process> Run(const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {MSPROBE_SERVER_BINARY};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return std::make_unique<Process>(arguments, log_);
  }
  std::unique_ptr<Process> Serve(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"--data_dir=" + (directory_ / "data"), "--listen=" + address_});
    return Run(more);
  }
  std::unique_ptr<Process> Embed(const std::string& idle = "0.2") {
    return Serve({"--embedded", "--dump_path=" + dump_, "--advertise=" + (directory_ / "server.json"),
                  "--idle_exit_seconds=" + idle});
  }
  int Fails(const std::vector<std::string>& flags) { return Run(flags)->Wait(); }
  std::string Log() { return ReadFile(log_); }

  ScratchDirectory directory_;
  const std::string log_ = directory_ / "log";
  const std::string dump_ = directory_ / "dump";
  const std::string address_ = "unix:" + (directory_ / "socket");
};

TEST_F(ServerBinaryTest, WrongFlagsAreRefusedByNameValueAndWhatIsAllowed) {
  const std::string data = "--data_dir=" + (directory_ / "data");
  EXPECT_EQ(Fails({data, "--durability=maybe"}), 2);
  EXPECT_THAT(Log(), HasSubstr("--durability=maybe is not valid; allowed are sync, interval and os"));
  EXPECT_EQ(Fails({data, "--listen=nowhere"}), 2);
  EXPECT_THAT(Log(), HasSubstr("\"nowhere\" is not host:port"));
  EXPECT_EQ(Fails({data, "--listen=0.0.0.0:0"}), 2);
  EXPECT_THAT(Log(), HasSubstr("--insecure"));
  EXPECT_EQ(Fails({data, "--listen=unix:relative"}), 2);
  EXPECT_THAT(Log(), HasSubstr("must be absolute"));
  EXPECT_EQ(Fails({data, "--listen=unix:/" + std::string(200, 'x')}), 2);
  EXPECT_THAT(Log(), HasSubstr("at most 107"));
  EXPECT_EQ(Fails({"--listen=127.0.0.1:0"}), 2);
  EXPECT_THAT(Log(), HasSubstr("--data_dir"));
  EXPECT_EQ(Fails({data, "--export_threads=0"}), 2);
  EXPECT_THAT(Log(), HasSubstr("--export_threads=0 is not valid; allowed are 1 to 64"));
  EXPECT_EQ(Fails({data, "--dump_path=/x"}), 2);
  EXPECT_THAT(Log(), HasSubstr("for --embedded only"));
  EXPECT_EQ(Fails({data, "--log_level=loud"}), 2);
  EXPECT_THAT(Log(), HasSubstr("--log_level=loud"));
  EXPECT_EQ(Fails({data, "stray"}), 2);
  EXPECT_THAT(Log(), HasSubstr("unexpected argument \"stray\""));
  EXPECT_NE(Fails({data, "--no_such_flag"}), 0);
  EXPECT_THAT(Log(), HasSubstr("no_such_flag"));
}

TEST_F(ServerBinaryTest, DataSurvivesKillAndSigtermIsObeyed) {
  ScriptedAgent agent("a");
  std::vector<v1::Batch> batches;
  for (int i = 0; i < 20; ++i) batches.push_back(agent.Call(0, "op" + std::to_string(i)).Take());
  auto server = Serve();
  {
    Stream stream(address_, agent.hello());
    for (const v1::Batch& batch : batches) stream.Send(batch);
    ASSERT_TRUE(stream.AwaitDurable(10));
    server->Kill(SIGKILL);
    EXPECT_EQ(server->Wait(), -SIGKILL);
    EXPECT_TRUE(stream.AwaitOver());
  }
  server = Serve();
  Stream stream(address_, agent.hello());
  ASSERT_TRUE(stream.AwaitWelcome());
  const uint64_t durable = stream.welcome().durable_through();
  EXPECT_GE(durable, 10u) << "what was acknowledged is kept";
  for (uint64_t i = durable; i < batches.size(); ++i) stream.Send(batches[i]);
  stream.Send(agent.StepEnd(0).Take());
  ASSERT_TRUE(stream.AwaitDurable(batches.size() + 1));

  auto query = v1::Query::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::ListRunsResponse runs;
  ASSERT_TRUE(query->ListRuns(&context, {}, &runs).ok());
  ASSERT_EQ(runs.runs_size(), 1);
  EXPECT_EQ(runs.runs(0).records(), 20u);
  EXPECT_EQ(runs.runs(0).open_sessions(), 1u);

  server->Kill(SIGTERM);
  EXPECT_TRUE(stream.AwaitOver());
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(server->Wait(), 0);
  EXPECT_FALSE(fs::exists(directory_ / "socket"));
}

TEST_F(ServerBinaryTest, SecondServerOfADirectoryIsRefused) {
  auto server = Serve();
  auto control = v1::Control::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  v1::ServerInfo info;
  ASSERT_TRUE(control->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.data_dir(), directory_ / "data");
  EXPECT_FALSE(info.embedded());
  EXPECT_EQ(Fails({"--data_dir=" + (directory_ / "data"), "--listen=127.0.0.1:0"}), 1);
  EXPECT_THAT(Log(), HasSubstr("in use by another msprobe-server (process " + std::to_string(server->pid()) + ")"));
  EXPECT_EQ(Fails({"--data_dir=" + (directory_ / "data"), "--listen=127.0.0.1:0", "--embedded"}), 0);
  EXPECT_EQ(Fails({"--data_dir=" + (directory_ / "other"), "--listen=" + address_}), 1);
  EXPECT_THAT(Log(), HasSubstr("another server answers there"));

  grpc::ClientContext drain_context;
  v1::DrainResponse response;
  EXPECT_TRUE(control->Drain(&drain_context, {}, &response).ok());
  EXPECT_EQ(server->Wait(), 0) << "Drain is SIGTERM by another way";
}

TEST_F(ServerBinaryTest, EmbeddedServerExportsAndLeaves) {
  auto server = Embed();
  ASSERT_TRUE(Eventually([&] { return fs::exists(directory_ / "server.json"); }));
  EXPECT_EQ(
      ReadFile(directory_ / "server.json")
          .find("{\"address\":\"" + address_ + "\",\"pid\":" + std::to_string(server->pid()) + ",\"server_id\":\""),
      0u);
  ScriptedAgent agent("a");
  Stream stream(address_, agent.hello());
  ASSERT_TRUE(stream.AwaitWelcome());
  EXPECT_THAT(stream.welcome().capabilities(),
              testing::ElementsAre("export", "payload_chunks", "digests", "edges", "scalars", "responses"));
  stream.Send(agent.Call(0, "add").StepEnd(0).Call(1, "open").ExportOpenStep(1).Take());
  ASSERT_TRUE(stream.AwaitExported(2));
  EXPECT_EQ(stream.exported()[0].path(), dump_ + "/step0");
  EXPECT_FALSE(stream.exported()[0].incomplete());
  EXPECT_THAT(ReadFile(dump_ + "/step0/rank0/dump.json"), HasSubstr("Torch.add.0.forward"));
  EXPECT_THAT(ReadFile(dump_ + "/step1/rank0/dump.json"), HasSubstr("Torch.open.0.forward"));
  stream.Send(agent.Call(1, "more").End().Take());
  ASSERT_TRUE(stream.AwaitExported(3));
  EXPECT_THAT(ReadFile(dump_ + "/step1/rank0/dump.json"), HasSubstr("Torch.more.0.forward"));
  EXPECT_FALSE(fs::exists(dump_ + "/step1/rank0/INCOMPLETE"));
  EXPECT_FALSE(server->Ended()) << "a stream is there";
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(server->Wait(), 0);
  EXPECT_FALSE(fs::exists(directory_ / "server.json"));
  EXPECT_FALSE(fs::exists(directory_ / "socket"));
}

// A process of this machine that says hello and then dies.
class DyingProcess {
 public:
  explicit DyingProcess(const ScratchDirectory& directory) : process_({"/bin/sleep", "1000"}, directory / "sleep") {}
  void Sign(v1::Hello& hello) {
    hello.set_process_id(static_cast<uint32_t>(process_.pid()));
    std::string boot_id = ReadFile("/proc/sys/kernel/random/boot_id");
    boot_id.erase(boot_id.find_last_not_of('\n') + 1);
    hello.set_boot_id(boot_id);
  }
  void Die() {
    process_.Kill(SIGKILL);
    process_.Wait();
  }

 private:
  Process process_;
};

TEST_F(ServerBinaryTest, EmbeddedServerExportsTheOpenStepOfADeadProcessAndLeaves) {
  DyingProcess process(directory_);
  ScriptedAgent agent("a");
  process.Sign(agent.hello());
  auto server = Embed();
  Stream stream(address_, agent.hello());
  stream.Send(agent.Call(0, "add").StepEnd(0).Enter(1, "running").Take());
  ASSERT_TRUE(stream.AwaitExported(1));
  process.Die();
  stream.Break();
  EXPECT_EQ(server->Wait(), 0);
  EXPECT_TRUE(fs::exists(dump_ + "/step1/rank0/INCOMPLETE"));
  EXPECT_THAT(ReadFile(dump_ + "/step1/rank0/dump.json"), HasSubstr("Torch.running.0.forward"));
  EXPECT_FALSE(fs::exists(dump_ + "/step0/rank0/INCOMPLETE"));
}

TEST_F(ServerBinaryTest, KilledWithItsProcessesItCompletesTheExportsWhenStartedAgain) {
  DyingProcess process(directory_);
  ScriptedAgent agent("a");
  process.Sign(agent.hello());
  // A server that exports nothing, like one that was killed before it could.
  auto server = Serve();
  {
    Stream stream(address_, agent.hello());
    stream.Send(agent.Call(0, "add").StepEnd(0).Call(1, "open").Take());
    ASSERT_TRUE(stream.AwaitDurable(1));
    server->Kill(SIGKILL);
    server->Wait();
    process.Die();
  }
  server = Embed();
  EXPECT_EQ(server->Wait(), 0);
  EXPECT_TRUE(fs::exists(dump_ + "/step0/rank0/dump.json"));
  EXPECT_FALSE(fs::exists(dump_ + "/step0/rank0/INCOMPLETE"));
  EXPECT_TRUE(fs::exists(dump_ + "/step1/rank0/INCOMPLETE"));
}

TEST_F(ServerBinaryTest, ExportedDirectoriesFollowTheRank) {
  auto server = Embed();
  ScriptedAgent agent("a");
  agent.hello().mutable_rank()->set_kind(v1::Rank::PROCESS);
  agent.hello().mutable_rank()->set_number(77);
  Stream stream(address_, agent.hello());
  stream.Send(agent.Call(0, "add").StepEnd(0).Take());
  ASSERT_TRUE(stream.AwaitExported(1));
  EXPECT_TRUE(fs::exists(dump_ + "/step0/proc77/dump.json"));
  stream.Send(agent.RankKnown(3).Call(1, "add").StepEnd(1).Take());
  ASSERT_TRUE(stream.AwaitExported(2));
  EXPECT_TRUE(fs::exists(dump_ + "/step0/rank3/dump.json"));
  EXPECT_FALSE(fs::exists(dump_ + "/step0/proc77"));
  EXPECT_EQ(stream.exported()[1].path(), dump_ + "/step1");
  stream.Send(agent.End().Take());
  ASSERT_TRUE(stream.AwaitDurable(3));
  EXPECT_TRUE(stream.Finish().ok());
  EXPECT_EQ(server->Wait(), 0);
}

}  // namespace
}  // namespace msprobe::server
