#pragma once

#include <Python.h>

#include "agent/capture/recorder.h"
#include "agent/capture/thread_state.h"

namespace msprobe::capture {

// The calling thread's state, with its slot in the recorder's step. Where it has none yet, thread_slot(step) gives it
// (_common/thread_slots.py). The GIL is held. An error that is set stays set.
ThreadState& ThreadInStep(Recorder& recorder, PyObject* thread_slot);

}  // namespace msprobe::capture
