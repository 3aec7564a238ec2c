#include "agent/core/detached_process.h"

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

// Everything the children need, made before they exist: they share this memory and may only make system calls.
struct Plan {
  char* const* arguments;
  char* const* environment;
  const char* log_path;
  cpu_set_t all_processors;
  sigset_t no_signals;
  volatile int error = 0;
};

void CloseFrom(int first) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;
#endif
  for (int descriptor = first; descriptor < 65536; ++descriptor) close(descriptor);
}

[[noreturn]] void Execute(Plan* plan) {
  struct sigaction action;
  action.sa_handler = SIG_DFL;
  action.sa_flags = 0;
  sigemptyset(&action.sa_mask);
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &action, nullptr);
  const int nothing = open("/dev/null", O_RDWR);
  int log = open(plan->log_path, O_WRONLY | O_CREAT | O_APPEND, 0644);
  if (log < 0) log = nothing;
  dup2(nothing, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  CloseFrom(3);
  sched_setaffinity(0, sizeof(plan->all_processors), &plan->all_processors);
  sigprocmask(SIG_SETMASK, &plan->no_signals, nullptr);
  execve(plan->arguments[0], plan->arguments, plan->environment);
  plan->error = errno;
  _exit(127);
}

// The caller of vfork sleeps until its child has executed or ended, so `plan` outlives both children.
[[gnu::noinline]] pid_t StartIntermediate(Plan* plan) {
  const pid_t child = vfork();
  if (child != 0) return child;
  setsid();
  const pid_t grandchild = vfork();
  if (grandchild == 0) Execute(plan);
  if (grandchild < 0) plan->error = errno;
  _exit(0);
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
  std::memset(&plan.all_processors, 0xFF, sizeof(plan.all_processors));
  sigemptyset(&plan.no_signals);

  // A handler of this process must not run in a child that shares its memory.
  sigset_t all_signals, before;
  sigfillset(&all_signals);
  pthread_sigmask(SIG_SETMASK, &all_signals, &before);
  const pid_t child = StartIntermediate(&plan);
  const int error = errno;
  if (child > 0) {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
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
