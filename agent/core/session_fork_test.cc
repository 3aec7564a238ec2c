// Programs that fork while another of their threads makes their first session. The process of the test itself never
// uses gRPC, so that each program, which it forks, sets gRPC up anew.
#include <grpc/support/log.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "agent/core/session.h"
#include "agent/core/str_cat.h"
#include "gtest/gtest.h"

namespace msprobe::core {
namespace {

// Not under sanitizers: GCC 12's take no care of their own locks at a fork.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)

constexpr int kMissedTheMoment = 100;

// A thread stops inside of grpc_init, where it has gRPC's lock, until it may go on.
std::atomic<bool> stops{true};
std::promise<void> inside, may_go_on;
void StopInside(gpr_log_func_args* line) {
  if (std::strstr(line->message, "grpc_init") == nullptr || !stops.exchange(false)) return;
  inside.set_value();
  may_go_on.get_future().wait();
}

class SessionForkTest : public ::testing::Test {
 protected:
  SessionForkTest() {
    options_.run = "run";
    options_.server = Cat("unix:", (directory_ / "nobody").string());
    options_.spool_directory = (directory_ / "spool").string();
  }
  ~SessionForkTest() override { std::filesystem::remove_all(directory_); }

  // Whether it ends in time, and with which status: -1 where it does not.
  static int StatusOf(pid_t process) {
    int result = -1;
    waitpid(process, &result, 0);
    return WIFEXITED(result) ? WEXITSTATUS(result) : -1;
  }

  // The status of a child that its program forks while another thread is inside of gRPC.
  int ForkedInside(const std::function<int()>& in_child) {
    const pid_t program = fork();
    if (program == 0) _exit(Program(in_child));
    return StatusOf(program);
  }

  const std::filesystem::path directory_ = std::filesystem::temp_directory_path() / Cat("core-session-fork-", getpid());
  SessionOptions options_;

 private:
  int Program(const std::function<int()>& in_child) {
    alarm(120);
    setenv("GRPC_TRACE", "api", 1);
    setenv("GRPC_VERBOSITY", "INFO", 1);
    gpr_set_log_function(StopInside);
    std::thread first([this] { Session::Open(options_).IgnoreError(); });
    if (inside.get_future().wait_for(std::chrono::seconds(60)) != std::future_status::ready) _exit(kMissedTheMoment);
    const pid_t child = fork();
    if (child == 0) {
      alarm(10);  // where it waits for a lock, nobody is left to give it up
      _exit(in_child());
    }
    const int status = StatusOf(child);
    may_go_on.set_value();
    first.join();
    return status;
  }
};

TEST_F(SessionForkTest, AChildOfAProgramThatMakesItsFirstSessionIsRefusedOne) {
  EXPECT_EQ(ForkedInside([this] { return static_cast<int>(Session::Open(options_).status().code()); }),
            static_cast<int>(absl::StatusCode::kFailedPrecondition));
}

TEST_F(SessionForkTest, AChildOfAProgramThatMakesItsFirstSessionEnds) {
  EXPECT_EQ(ForkedInside([]() -> int { std::exit(7); }), 7);
}

#endif

}  // namespace
}  // namespace msprobe::core
