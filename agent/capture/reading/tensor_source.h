#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "agent/capture/reading/gradient_reading.h"
#include "agent/capture/reading/memory_reader.h"
#include "agent/capture/reading/tensor_reading.h"
#include "agent/core/config/config.h"
#include "agent/core/record.h"

namespace msprobe::capture {

// A framework's tensor, borrowed for the length of a call. Only the TensorSource knows the type behind the pointer.
struct TensorRef {
  const void* tensor = nullptr;
};

// The part of a framework that capture needs. Each framework's room implements it once (agent/torch/torch_source.h),
// and a Recorder owns one.
//
// Threads: every method from any thread. Methods may throw what the framework throws for a broken device; callers
// contain it (Faults::Contain).
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The framework's name in the header of dump.json: "pytorch".
  virtual std::string_view framework() const = 0;

  // Reads one tensor, whose memory may change as soon as this returns. No operator of the framework runs, nothing waits
  // for a device, and the program's random state stays as it is. A tensor whose memory cannot be read so gives a
  // reading without numbers. What comes from a device gives a leaf that is pending. save: also keep the bytes. memory:
  // which part to read, and how.
  virtual TensorReading Read(TensorRef tensor, bool save, const MemoryReader& memory) = 0;

  // Parameters of a model whose capture begins, in the order of their calls as far as that is known. The source may
  // make their numbers before they are captured.
  virtual void Expect(std::span<const TensorRef> /*parameters*/) {}

  // The values of all elements, or of `most` of them in pieces that lie evenly over the tensor: of tensors of one size
  // the same ones. Empty: its memory is no host's, is not dense, or holds no numbers.
  virtual std::vector<double> Sample(TensorRef /*tensor*/, size_t /*most*/) { return {}; }

  // Reads a gradient for task grad_probe, as Read does. Signs and intervals are there where the dtype has signs.
  virtual GradientReading ReadGradient(TensorRef tensor, const core::GradProbeConfig& probe,
                                       const MemoryReader& memory) = 0;

  // The tensor's memory, for edges. Without a storage where the framework has none that can be told apart; then nothing
  // is known of where the tensor came from.
  virtual TensorIdentity Identify(TensorRef /*tensor*/) { return {}; }

  // A call is about to begin on this thread, and its record with it. Records of the backward pass that end before the
  // call are completed here, so that they stand before it. True: the call belongs to the second forward of activation
  // checkpointing.
  virtual bool BeginCall(core::RecordKind kind) = 0;

  // Submits what is gathered for a device, so that pending readings come.
  virtual void Flush() = 0;

  // The step has ended. From now on the source may remember what outlived it.
  virtual void EndStep() = 0;

  // How often a tensor's numbers were remembered instead of read, and how often they proved wrong, since the beginning.
  struct Counts {
    uint64_t recalled = 0;
    uint64_t wrong = 0;
  };
  virtual Counts counts() const = 0;
};

}  // namespace msprobe::capture
