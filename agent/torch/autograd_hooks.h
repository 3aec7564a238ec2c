#pragma once

#include <torch/csrc/autograd/function_hook.h>

#include <functional>

namespace msprobe::capture {

// Hooks that look and change nothing. Under compiled autograd they are left out of the compiled graph.

class PostHook final : public torch::autograd::FunctionPostHook {
 public:
  using Look = std::function<void(const torch::autograd::variable_list& leaving,
                                  const torch::autograd::variable_list& arriving)>;
  explicit PostHook(Look look) : look_(std::move(look)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& leaving,
                                            const torch::autograd::variable_list& arriving) override {
    look_(leaving, arriving);
    return leaving;
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {}

 private:
  const Look look_;
};

}  // namespace msprobe::capture
