#include "agent/core/embedded/embedded_server.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "agent/core/embedded/detached_process.h"
#include "agent/core/process_identity.h"
#include "agent/core/session.h"
#include "agent/core/str_cat.h"
#include "agent/core/transport/stream/fake_ingest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

bool Eventually(const std::function<bool()>& condition) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (absl::Now() < deadline) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(5));  // between two looks at what another process does
  }
  return false;
}

// What a detached process sees around it.
std::string Surroundings() {
  std::string text;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const fs::path target = fs::read_symlink(entry, error);
    if (!error && target.string().find("/proc/") != 0) {
      text += Cat("descriptor ", entry.path().filename().string(), " ", target.string(), "\n");
    }
  }
  cpu_set_t processors;
  sched_getaffinity(0, sizeof(processors), &processors);
  sigset_t blocked;
  sigprocmask(SIG_SETMASK, nullptr, &blocked);
  struct sigaction action;
  sigaction(SIGUSR1, nullptr, &action);
  return Cat(text, "leader ", getsid(0) == getpid() || getsid(0) != getsid(getppid()), "\nprocessors ",
             CPU_COUNT(&processors), "\nblocked ", sigismember(&blocked, SIGTERM), "\nignored ",
             action.sa_handler == SIG_IGN, "\npid ", getpid(), "\nparent ", getppid(), "\nsession ", getsid(0), "\n");
}

// This binary as the embedded server: it advertises itself, serves a FakeIngest, and exits when its directory is gone.
// As with the real server, only one process serves a directory.
int Serve(const std::map<std::string, std::string>& flags) {
  const fs::path data = flags.at("--data_dir");
  const int lock = open((data / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) != 0) return 1;
  std::ofstream(data / "surroundings") << Surroundings();
  FakeIngest fake(flags.at("--listen").substr(5));
  fake.Start();
  std::ofstream(data / "server.json.new") << Cat(R"({"address": ")", fake.address(), R"(", "pid": )", getpid(), "}");
  fs::rename(data / "server.json.new", flags.at("--advertise"));
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (fs::exists(data) && absl::Now() < deadline) {
    size_t fragments = 0;
    for (const v1::Batch& batch : fake.batches()) {
      for (const v1::Item& item : batch.items()) fragments += static_cast<size_t>(item.block().count_size());
    }
    std::ofstream(data / "fragments.new") << fragments;
    std::error_code gone;
    fs::rename(data / "fragments.new", data / "fragments", gone);
    absl::SleepFor(absl::Milliseconds(5));  // between two looks at what came, and at whether the test still is
  }
  return 0;
}

class EmbeddedServerTest : public ::testing::Test {
 protected:
  EmbeddedServerTest()
      : directory_(fs::temp_directory_path() / Cat("core-embedded-", getpid())), dump_path_(directory_ / "dump path") {
    fs::create_directories(directory_ / "runtime");
    setenv("XDG_RUNTIME_DIR", (directory_ / "runtime").c_str(), 1);
  }
  ~EmbeddedServerTest() override {
    // A server may still write into it.
    EXPECT_TRUE(Eventually([this] {
      std::error_code error;
      fs::remove_all(directory_, error);
      return !fs::exists(directory_);
    }));
  }

  const fs::path directory_, dump_path_;
  const std::string self_ = fs::read_symlink("/proc/self/exe");
};

TEST_F(EmbeddedServerTest, PreparesDirectoriesAndAShortPrivateSocketPath) {
  const absl::StatusOr<EmbeddedServer> server = EmbeddedServer::Prepare(dump_path_, self_);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(server->data_directory(), (dump_path_ / ".msprobe" / BootId()).string());
  EXPECT_TRUE(fs::is_directory(server->data_directory()));
  EXPECT_LE(server->socket_path().size(), 107);
  struct stat status {};
  ASSERT_EQ(stat(fs::path(server->socket_path()).parent_path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700);
  EXPECT_FALSE(server->AdvertisedAddress().has_value());
  std::ofstream(fs::path(server->data_directory()) / "server.json") << "{\"addr";
  EXPECT_FALSE(server->AdvertisedAddress().has_value());
}

TEST_F(EmbeddedServerTest, OnlyAFileThatNamesThisDirectorysSocketIsBelieved) {
  const absl::StatusOr<EmbeddedServer> server = EmbeddedServer::Prepare(dump_path_, self_);
  ASSERT_TRUE(server.ok()) << server.status();
  const fs::path file = fs::path(server->data_directory()) / "server.json";
  const std::string name = fs::path(server->socket_path()).filename();
  std::ofstream(file) << R"({"address": "unix:/elsewhere/)" << name << R"(", "pid": 1})";
  EXPECT_EQ(server->AdvertisedAddress(), "unix:/elsewhere/" + name);
  const absl::StatusOr<EmbeddedServer> copied = EmbeddedServer::Prepare(dump_path_ / "copy", self_);
  ASSERT_TRUE(copied.ok()) << copied.status();
  fs::copy_file(file, fs::path(copied->data_directory()) / "server.json");
  EXPECT_FALSE(copied->AdvertisedAddress().has_value()) << "it is the original's";
}

TEST_F(EmbeddedServerTest, WhateverLiesInPlaceOfTheAddressIsNoneAndIsNotWaitedFor) {
  const absl::StatusOr<EmbeddedServer> server = EmbeddedServer::Prepare(dump_path_, self_);
  ASSERT_TRUE(server.ok()) << server.status();
  const fs::path file = fs::path(server->data_directory()) / "server.json";
  fs::create_directory(file);
  EXPECT_FALSE(server->AdvertisedAddress().has_value()) << "a directory";
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_FALSE(server->AdvertisedAddress().has_value()) << "a named pipe";
  fs::remove(file);
  for (const size_t depth : {size_t{60'000}, size_t{5'000'000}}) {
    std::ofstream(file) << std::string(depth, '[');
    EXPECT_FALSE(server->AdvertisedAddress().has_value()) << depth << " deep";
  }
  fs::resize_file(file, uintmax_t{1} << 40);
  EXPECT_FALSE(server->AdvertisedAddress().has_value()) << "a tebibyte of nothing";
}

TEST_F(EmbeddedServerTest, ADataDirectoryThatAnotherUserPlantedIsRefused) {
  const std::string data = EmbeddedServer::Prepare(dump_path_, self_)->data_directory();
  fs::remove(data);
  fs::create_directories(directory_ / "elsewhere");
  fs::create_directory_symlink(directory_ / "elsewhere", data);
  EXPECT_THAT(std::string(EmbeddedServer::Prepare(dump_path_, self_).status().message()), HasSubstr("a link to one"));
  fs::remove(data);
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a directory of another user";
  ASSERT_EQ(chown(fs::path(data).parent_path().c_str(), 65534, 65534), 0);
  EXPECT_THAT(std::string(EmbeddedServer::Prepare(dump_path_, self_).status().message()),
              HasSubstr(".msprobe belongs to user 65534"));
}

TEST_F(EmbeddedServerTest, TheSocketIsOfThisDirectoryNotOfADeletedOneOfItsName) {
  const std::string first = EmbeddedServer::Prepare(dump_path_, self_)->socket_path();
  EXPECT_EQ(EmbeddedServer::Prepare(dump_path_, self_)->socket_path(), first);
  fs::remove_all(dump_path_);
  EXPECT_NE(EmbeddedServer::Prepare(dump_path_, self_)->socket_path(), first);
}

TEST_F(EmbeddedServerTest, ARuntimeDirectoryThatOthersMayEnterIsNotUsed) {
  fs::create_directories(directory_ / "runtime" / "msprobe");
  chmod((directory_ / "runtime" / "msprobe").c_str(), 0755);
  const absl::StatusOr<std::string> runtime = RuntimeDirectory();
  ASSERT_TRUE(runtime.ok()) << runtime.status();
  EXPECT_EQ(*runtime, Cat("/tmp/msprobe-", geteuid()));
}

TEST_F(EmbeddedServerTest, DataLiesOffNetworkFileSystems) {
  EXPECT_EQ(DataDirectory("/d", "boot", "/tmp", false), "/d/.msprobe/boot");
  const std::string local = DataDirectory("/d", "boot", "/var/tmp", true);
  EXPECT_THAT(local, ::testing::StartsWith(Cat("/var/tmp/msprobe-", geteuid(), "/")));
  EXPECT_NE(local, DataDirectory("/other", "boot", "/var/tmp", true));
  EXPECT_FALSE(IsOnNetworkFileSystem("/proc"));
}

TEST_F(EmbeddedServerTest, FindsItsBinaryOrSaysWhereItLooked) {
  EXPECT_EQ(*EmbeddedServer::FindBinary(self_), self_);
  EXPECT_THAT(std::string(EmbeddedServer::FindBinary("/no/such").status().message()), HasSubstr("/no/such"));
  const std::string path = getenv("PATH");
  setenv("PATH", (directory_ / "bin").c_str(), 1);
  const absl::Status nowhere = EmbeddedServer::FindBinary("").status();
  EXPECT_THAT(std::string(nowhere.message()), HasSubstr((directory_ / "bin").string()));
  fs::create_directories(directory_ / "bin");
  fs::copy_file("/bin/true", directory_ / "bin" / "msprobe-server");
  EXPECT_EQ(*EmbeddedServer::FindBinary(""), (directory_ / "bin" / "msprobe-server").string());
  setenv("PATH", path.c_str(), 1);
}

TEST_F(EmbeddedServerTest, AStartedServerHasNothingOfThisProcess) {
  const absl::StatusOr<EmbeddedServer> server = EmbeddedServer::Prepare(dump_path_, self_);
  ASSERT_TRUE(server.ok()) << server.status();
  const int inherited = open("/dev/zero", O_RDONLY);  // no O_CLOEXEC
  cpu_set_t before, one;
  sched_getaffinity(0, sizeof(before), &before);
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  sched_setaffinity(0, sizeof(one), &one);
  sigset_t terminate;
  sigemptyset(&terminate);
  sigaddset(&terminate, SIGTERM);
  sigprocmask(SIG_BLOCK, &terminate, nullptr);
  signal(SIGUSR1, SIG_IGN);
  ASSERT_TRUE(server->Start().ok());
  signal(SIGUSR1, SIG_DFL);
  sigprocmask(SIG_UNBLOCK, &terminate, nullptr);
  sched_setaffinity(0, sizeof(before), &before);
  close(inherited);
  ASSERT_TRUE(Eventually([&] { return server->AdvertisedAddress().has_value(); }));
  const std::string report = ReadFile(fs::path(server->data_directory()) / "surroundings");
  EXPECT_THAT(report, HasSubstr("descriptor 0 /dev/null\n"));
  EXPECT_THAT(report, HasSubstr(Cat("descriptor 1 ", server->data_directory(), "/server.log\n")));
  EXPECT_THAT(report, HasSubstr(Cat("descriptor 2 ", server->data_directory(), "/server.log\n")));
  EXPECT_THAT(report, ::testing::Not(HasSubstr("/dev/zero")));
  EXPECT_THAT(report, HasSubstr(Cat("processors ", CPU_COUNT(&before), "\n")));
  EXPECT_THAT(report, HasSubstr("blocked 0\n"));
  EXPECT_THAT(report, HasSubstr("ignored 0\n"));
  EXPECT_THAT(report, ::testing::Not(HasSubstr(Cat("parent ", getpid(), "\n"))));
  EXPECT_THAT(report, ::testing::Not(HasSubstr(Cat("session ", getsid(0), "\n"))));
}

TEST_F(EmbeddedServerTest, ABinaryThatCannotBeExecutedIsSaid) {
  const fs::path bad = directory_ / "bad";
  std::ofstream(bad) << "neither a script nor a program";
  chmod(bad.c_str(), 0755);
  const absl::Status status = StartDetached({bad.string()}, (directory_ / "log").string());
  EXPECT_THAT(std::string(status.message()), HasSubstr(bad.string()));
}

TEST_F(EmbeddedServerTest, ASessionStartsItsServerAndAnotherWhenThatIsKilled) {
  SessionOptions options;
  options.run = "run";
  options.settings.dump_path = dump_path_;
  options.server_binary = self_;
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Open(options);
  ASSERT_TRUE(session.ok()) << session.status();
  const fs::path data = dump_path_ / ".msprobe" / BootId();
  EXPECT_FALSE(fs::exists(data / "server.json"));
  Structure structure;
  structure.name = "Torch.add";
  structure.fields.kind = NodeKind::kDict;
  Fragment fragment;
  fragment.structure = (*session)->DefineStructure(structure);
  (*session)->Emit(fragment);
  ASSERT_TRUE((*session)->Wait(absl::Seconds(30)).ok());
  EXPECT_TRUE(Eventually([&] { return ReadFile(data / "fragments") == "1"; }));
  const std::string first = ReadFile(data / "server.json");
  kill(std::stoi(first.substr(first.rfind(' '))), SIGKILL);
  for (int i = 0; i < 3; ++i) (*session)->Emit(fragment);
  ASSERT_TRUE((*session)->Wait(absl::Seconds(30)).ok());
  EXPECT_TRUE(Eventually([&] { return ReadFile(data / "fragments") == "3"; }));
  EXPECT_NE(ReadFile(data / "server.json"), first);
  EXPECT_TRUE((*session)->Close(true, absl::Seconds(30)).ok());
}

}  // namespace
}  // namespace msprobe::core

int main(int argc, char** argv) {
  if (argc > 1 && std::string(argv[1]) == "--embedded") {
    std::map<std::string, std::string> flags;
    for (int i = 2; i < argc; ++i) {
      const std::string flag = argv[i];
      flags[flag.substr(0, flag.find('='))] = flag.substr(flag.find('=') + 1);
    }
    return msprobe::core::Serve(flags);
  }
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
