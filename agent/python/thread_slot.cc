#include "agent/python/thread_slot.h"

#include "agent/python/object_reference.h"

namespace msprobe::capture {

ThreadState& ThreadInStep(Recorder& recorder, PyObject* thread_slot) {
  ThreadState& thread = ThreadState::Get();
  const uint32_t step = recorder.step().id();
  if (thread.slot_step == step) return thread;
  const KeptError error;
  ++thread.suppressed;
  const ObjectReference slot = ObjectReference::Steal(PyObject_CallFunction(thread_slot, "I", step));
  --thread.suppressed;
  const long number = slot ? PyLong_AsLong(slot.get()) : -1;
  PyErr_Clear();
  thread.slot = number < 0 ? 0 : static_cast<uint32_t>(number);
  thread.slot_step = step;
  return thread;
}

}  // namespace msprobe::capture
