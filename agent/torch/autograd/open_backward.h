#pragma once

#include <cstdint>
#include <memory>

namespace msprobe::capture {

// A module's backward that has begun and is not complete. Until its end it is the parent of the records that begin.
//
// Autograd runs the latest of the nodes that are ready on a device first. So when a node runs that is older than the
// module's call, the module's own nodes on this thread have run: the module has ended, even if no gradient will ever
// come to its inputs. Nodes of another device may still bring gradients, which are waited for until the pass has ended.
//
// Threads: each on the thread on which its backward began, or on which its last gradient left.
class OpenBackward : public std::enable_shared_from_this<OpenBackward> {
 public:
  virtual ~OpenBackward() = default;

  // The node of this sequence number runs on this thread, or is about to: ends the modules that began after it, the
  // latest first. Called before anything about the node is recorded.
  static void EndBehind(uint64_t sequence);
  // The same where two modules share a tensor, so that no node lies between them: ends the modules that began after
  // this place in the order of calls.
  static void EndAfter(uint64_t order);

 protected:
  // sequence: the least number that a node of the call can have. Known when the call is entered.
  void Entered(uint64_t sequence) { first_sequence_ = sequence; }

  // Its backward begins, on this thread and in this pass.
  void Open();
  // Its gradients have all left, on this thread: it is complete as soon as it ends.
  void WaitForEnd();

  // The order of calls, for those that began at the same sequence number.
  static uint64_t NextOrder();

  // Whether there is something to do when it ends, or when the pass does.
  virtual bool CanEnd(bool pass_ended) = 0;
  // Does it. True: it is complete.
  virtual bool End(bool pass_ended) = 0;

 private:
  template <typename Chosen>
  static void EndWhere(bool pass_ended, Chosen chosen);

  uint64_t first_sequence_ = 0;
  const uint64_t order_ = NextOrder();
  int pass_ = -1;  // autograd's number of the pass
};

}  // namespace msprobe::capture
