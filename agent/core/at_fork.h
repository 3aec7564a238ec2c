#pragma once

#include <functional>
#include <string>

namespace msprobe::core {

// Has `in_child` called in every child that this process forks while this lives, before fork() returns there: for what
// is of this process alone. Only system calls are safe in it. What was constructed last is called first.
//
// The last member of its owner, so that it ends first. Children made without fork(), as posix_spawn makes them, execute
// at once, which closes what they have of a parent.
//
// Threads: any. No fork happens between the beginning and the end of a construction or destruction.
class AtFork {
 public:
  // `now`, where it is not empty, is called first, without a fork between it and the rest.
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

// A file that is open for this process alone, so that its lock (flock) says that this process lives: forked children
// have it closed. Threads: any.
class OwnDescriptor {
 public:
  // As open(2), with O_CLOEXEC.
  OwnDescriptor(const std::string& path, int flags, int mode = 0);
  ~OwnDescriptor();

  // -1: it could not be opened (errno, right after the construction), or this is a forked child.
  int get() const { return descriptor_; }

 private:
  int descriptor_ = -1;
  const AtFork at_fork_;
};

}  // namespace msprobe::core
