#pragma once

namespace msprobe::capture {

// How busy the machine is, by the kernel's count of the threads that run or wait for a core.
//
// Threads: any.
class MachineLoad {
 public:
  // `load`: a file as /proc/loadavg in proc(5).
  explicit MachineLoad(const char* load = "/proc/loadavg");
  ~MachineLoad();
  MachineLoad(const MachineLoad&) = delete;
  MachineLoad& operator=(const MachineLoad&) = delete;

  // Cores less those threads, of which the caller is one. Negative: some wait. As if all cores were taken where the
  // kernel does not tell.
  int IdleCores() const;

 private:
  const int file_;
  const int cores_;  // counted once: glibc opens a file for it
};

}  // namespace msprobe::capture
