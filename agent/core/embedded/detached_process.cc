#include "agent/core/embedded/detached_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent/core/str_cat.h"

extern char** environ;

namespace msprobe::core {
namespace {

constexpr size_t kStackBytes = size_t{64} << 10;

// Everything that the children need. It is prepared for them, because they share this memory and may only make system
// calls.
struct Plan {
  char* const* arguments;
  char* const* environment;
  const char* log_path;
  cpu_set_t all_processors;
  sigset_t no_signals;
  char* executing_stack_end;
  volatile int error = 0;
};

// Sanitizers would look for the stacks of these threads, which they do not know.
#define MSPROBE_CHILD_CODE __attribute__((no_sanitize("address", "thread", "undefined")))

MSPROBE_CHILD_CODE void CloseFrom(int first) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
#endif
  for (int descriptor = first; descriptor < 65536; ++descriptor) close(descriptor);
}

MSPROBE_CHILD_CODE int Execute(void* argument) {
  Plan* const plan = static_cast<Plan*>(argument);
  struct sigaction action;
  action.sa_handler = SIG_DFL;
  action.sa_flags = 0;
  sigemptyset(&action.sa_mask);
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &action, nullptr);
  const int nothing = open("/dev/null", O_RDWR);
  int log = open(plan->log_path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
  if (log < 0) log = nothing;
  dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  CloseFrom(3);
  sched_setaffinity(0, sizeof(plan->all_processors), &plan->all_processors);
  sigprocmask(SIG_SETMASK, &plan->no_signals, nullptr);
  execve(plan->arguments[0], plan->arguments, plan->environment);
  plan->error = errno;
  syscall(SYS_exit_group, 127);
  return 127;
}

// Starts the program and exits at once, so that the program becomes init's child.
MSPROBE_CHILD_CODE int StartAndLeave(void* argument) {
  Plan* const plan = static_cast<Plan*>(argument);
  setsid();
  if (clone(Execute, plan->executing_stack_end, CLONE_VM | CLONE_VFORK | SIGCHLD, plan) < 0) plan->error = errno;
  syscall(SYS_exit_group, 0);
  return 0;
}

}  // namespace

absl::Status StartDetached(const std::vector<std::string>& arguments, const std::string& log_path) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  Plan plan;
  plan.arguments = pointers.data();
  plan.environment = environ;
  plan.log_path = log_path.c_str();
  std::vector<char> stacks(2 * kStackBytes);
  plan.executing_stack_end = stacks.data() + 2 * kStackBytes;
  std::memset(&plan.all_processors, 0xFF, sizeof(plan.all_processors));
  sigemptyset(&plan.no_signals);

  // Signal handlers of this process must not run in a child that shares its memory.
  sigset_t all_signals, before;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &before);
  // CLONE_VFORK returns when both children have executed or ended, so the plan and the stacks outlive them. There is no
  // exit signal, so neither the program's wait() nor its SIGCHLD handler notices the child.
  const auto start = [&](int exit_signal) {
    return clone(StartAndLeave, stacks.data() + kStackBytes, CLONE_VM | CLONE_VFORK | exit_signal, &plan);
  };
  pid_t child = start(0);
  if (child < 0 && errno == EINVAL) child = start(SIGCHLD);  // qemu-user knows no child without one
  const int error = errno;
  if (child > 0) {
    while (waitpid(child, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (child < 0) return absl::UnavailableError(Cat("cannot fork: ", std::strerror(error)));
  if (plan.error != 0) {
    return absl::UnavailableError(Cat("cannot execute ", arguments[0], ": ", std::strerror(plan.error)));
  }
  return absl::OkStatus();
}

}  // namespace msprobe::core
