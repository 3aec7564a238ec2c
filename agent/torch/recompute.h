#pragma once

namespace msprobe::capture {

// Whether a call made now by this thread belongs to activation checkpointing's second forward, which runs inside a node
// of the backward pass: in the reentrant form inside CheckpointFunction's own, in the other where a node unpacks what
// it saved. What the backward of a user's autograd.Function calls is not, unless it is a module. Any thread; outside of
// a backward pass it costs one thread-local read.
bool Recomputing(bool is_module);

}  // namespace msprobe::capture
