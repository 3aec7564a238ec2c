#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <vector>

#include "agent/capture/recorder.h"
#include "agent/torch/autograd/api_backward.h"
#include "agent/torch/autograd/open_backward.h"

namespace msprobe::capture {

// One call of a module whose tensors pass through autograd nodes of ours ("backward": "exact").
//
// One node that does nothing stands where the tensors go in, and another where they come out. So the module's own part
// of a gradient is known, however its tensors are used. Full backward hooks work in the same way. The graph is another
// one, so gradients may be accumulated in another order, and their last bits may differ. Tensors keep their memory;
// they may be changed in place.
//
// Threads: PassInputs and PassOutputs on the calling thread; the hooks on autograd's threads.
class ExactBackward final : public OpenBackward {
 public:
  ExactBackward(std::shared_ptr<Recorder> recorder, OpenRecord forward);

  // Tensors that require grad, in grad mode: the same ones behind a node. Each at most once a call of the module.
  std::vector<at::Tensor> PassInputs(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> PassOutputs(const std::vector<at::Tensor>& outputs);

 private:
  void Arrived(const std::vector<at::Tensor>& gradients);
  void Left(const std::vector<at::Tensor>& gradients);
  void Complete(const GradientReadings& left);
  void Close();  // is no parent any more
  bool CanEnd(bool pass_ended) override;
  bool End(bool pass_ended) override;

  const std::shared_ptr<Recorder> recorder_;
  OpenRecord forward_;
  size_t inputs_ = 0;  // that require grad

  std::recursive_mutex mu_;  // guards what follows
  OpenRecord backward_;
  bool open_ = false;  // gradients have arrived and not left
  bool closed_ = false;
};

}  // namespace msprobe::capture
