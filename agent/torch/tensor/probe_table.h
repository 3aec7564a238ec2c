#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>

#include "agent/capture/fragments/fragment_builder.h"
#include "agent/capture/recorder.h"

namespace msprobe::capture {

// The memory in which the probes of a compiled or captured graph leave their readings of one device's tensors. A probe
// is a number, given out before the graph is traced and constant in it; the operator msprobe::probe (probe_operator.h)
// runs it each time that the graph does, and once a step, after replay, Gather brings everything to the host.
//
// Slots are the part that the operator's schema names: int64, [kSlot0 + kSlotsEach * probes].
//   slots[0]                    the switch: 0 turns every probe off, with no new capture
//   slots[SlotOf(probe)]        how often the probe has run, ever
//   slots[SlotOf(probe) + 1]    devices: which form the tensor had (its shape, type and place in the table's memory)
// They are small because a compiler may copy them at each probe (it does when it makes a graph functional). The
// readings are in other memory of the table. The tensor of slots never changes its address, which graphs hold.
//
// Invariants:
// 1. A probe that did not run since the last Gather has no reading: numbers are never those of an earlier step.
// 2. Of a probe that ran several times the reading is the last run's, and `runs` says how often.
// 3. A probe that fails is counted as a fault of the session; it never fails the graph.
//
// Threads: Run from any; the rest from one thread, not while a graph runs. Tables live as long as the process.
class ProbeTable {
 public:
  static constexpr int64_t kSlot0 = 2;
  static constexpr int64_t kSlotsEach = 2;
  static int64_t SlotOf(int64_t probe) { return kSlot0 + kSlotsEach * probe; }

  // A table of `probes` probes. memory_bytes bounds the memory on a device.
  // Throws what libtorch throws for a device without room.
  static ProbeTable* Make(std::shared_ptr<Recorder> recorder, c10::Device device, int64_t probes, size_t memory_bytes);
  static ProbeTable* Find(int64_t id);  // null: there is none

  virtual ~ProbeTable() = default;
  int64_t id() const { return id_; }
  const at::Tensor& slots() const { return slots_; }
  int64_t probes() const { return probes_; }
  Recorder& recorder() const { return *recorder_; }
  // Another configuration, for the same graphs.
  void SetRecorder(std::shared_ptr<Recorder> recorder) { recorder_ = std::move(recorder); }

  // The operator's work. `slots` has the values of slots(), at another address where a compiler copied them.
  virtual void Run(const at::Tensor& x, const at::Tensor& slots, int64_t probe) noexcept = 0;
  virtual void Switch(bool on) = 0;
  // Whether the probe keeps its tensor's bytes. For graphs that are captured afterwards.
  virtual void KeepBytes(int64_t probe, bool keep) = 0;

  struct Found {
    uint64_t runs = 0;  // between the last Gather and the one before
    TensorReading reading;
  };
  // Brings the readings of the probes that ran since the last call to the host, and returns their number. Take then
  // returns each reading once, until Forget.
  virtual int64_t Gather() = 0;
  virtual Found Take(int64_t probe) = 0;
  virtual void Forget() = 0;

 protected:
  ProbeTable(std::shared_ptr<Recorder> recorder, int64_t probes, at::Tensor slots);
  void Fault(int64_t probe, const char* message) noexcept;
  bool InRange(int64_t probe) const { return probe >= 0 && probe < probes_; }

 private:
  const int64_t id_;
  const int64_t probes_;
  const at::Tensor slots_;
  std::shared_ptr<Recorder> recorder_;
};

}  // namespace msprobe::capture
