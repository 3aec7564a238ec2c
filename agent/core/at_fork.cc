#include "agent/core/at_fork.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <utility>

#include "agent/core/mutex.h"

namespace msprobe::core {

struct AtForkList {
  Mutex mu;
  AtFork* first ABSL_GUARDED_BY(mu) = nullptr;

  // Never destroyed, because static objects may use it until the end.
  static AtForkList& Get() {
    static AtForkList* const list = [] {
      pthread_atfork([] { Get().Begin(); }, [] { Get().End(); }, [] { Get().InChild(); });
      return new AtForkList;
    }();
    return *list;
  }

  // The forking thread holds the lock during the fork, so that the child finds a consistent list.
  void Begin() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu.Lock(); }
  void End() ABSL_NO_THREAD_SAFETY_ANALYSIS { mu.Unlock(); }
  void InChild() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    for (const AtFork* at = first; at != nullptr; at = at->next_) at->in_child_();
    mu.Unlock();
  }

  void Add(AtFork* added, const std::function<void()>& now) {
    MutexLock lock(&mu);
    if (now) now();
    added->next_ = first;
    if (first != nullptr) first->previous_ = added;
    first = added;
  }
  void Remove(AtFork* removed) {
    MutexLock lock(&mu);
    (removed->previous_ != nullptr ? removed->previous_->next_ : first) = removed->next_;
    if (removed->next_ != nullptr) removed->next_->previous_ = removed->previous_;
  }
};

AtFork::AtFork(std::function<void()> in_child, const std::function<void()>& now) : in_child_(std::move(in_child)) {
  AtForkList::Get().Add(this, now);
}

AtFork::~AtFork() { AtForkList::Get().Remove(this); }

OwnDescriptor::OwnDescriptor(const std::string& path, int flags, int mode)
    : at_fork_(
          [this] {
            if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
          },
          [&] { descriptor_ = open(path.c_str(), flags | O_CLOEXEC, mode); }) {}

OwnDescriptor::~OwnDescriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace msprobe::core
