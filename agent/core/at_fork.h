#pragma once

#include <functional>
#include <string>

namespace msprobe::core {

// While this object lives, `in_child` is called in every child that this process forks, before fork() returns there. It
// gives up what belongs to this process alone. It may only make system calls. The object constructed last is called
// first.
//
// Make it the last member of its owner, so that it is destroyed first. Children of posix_spawn, which does not fork(),
// execute a program at once; that closes what they have inherited.
//
// Threads: any. No fork happens during construction or destruction.
class AtFork {
 public:
  // Calls `now` first, if it is set. No fork happens between that call and the end of the construction.
  explicit AtFork(std::function<void()> in_child, const std::function<void()>& now = {});
  ~AtFork();
  AtFork(const AtFork&) = delete;
  AtFork& operator=(const AtFork&) = delete;

 private:
  friend struct AtForkList;

  const std::function<void()> in_child_;
  AtFork* previous_ = nullptr;
  AtFork* next_ = nullptr;
};

// A file that only this process has open, because forked children close it. So a lock on it (flock) proves that this
// process lives. Threads: any.
class OwnDescriptor {
 public:
  // Like open(2), with O_CLOEXEC.
  OwnDescriptor(const std::string& path, int flags, int mode = 0);
  ~OwnDescriptor();

  // -1: the file could not be opened (errno has the reason right after construction), or this is a forked child.
  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
  const AtFork at_fork_;
};

}  // namespace msprobe::core
