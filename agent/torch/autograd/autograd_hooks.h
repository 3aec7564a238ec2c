#pragma once

#include <torch/csrc/autograd/function_hook.h>

#include <memory>
#include <utility>

#include "agent/core/pool.h"
#include "agent/torch/torch_versions.h"

namespace msprobe::capture {

// Hooks that look and change nothing. Under compiled autograd they are left out of the compiled graph.

// Look: void(const variable_list& leaving, const variable_list& arriving)
template <typename Look>
class PostHook final : public UncompiledHook<torch::autograd::FunctionPostHook>, public core::Pooled {
 public:
  explicit PostHook(Look look) : look_(std::move(look)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& leaving,
                                            const torch::autograd::variable_list& arriving) override {
    look_(leaving, arriving);
    return leaving;
  }

 private:
  const Look look_;
};

template <typename Look>
std::unique_ptr<torch::autograd::FunctionPostHook> MakePostHook(Look look) {
  return std::make_unique<PostHook<Look>>(std::move(look));
}

// Look: void(const variable_list& arriving)
template <typename Look>
class PreHook final : public UncompiledHook<torch::autograd::FunctionPreHook>, public core::Pooled {
 public:
  explicit PreHook(Look look) : look_(std::move(look)) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& arriving) override {
    look_(arriving);
    return arriving;
  }

 private:
  const Look look_;
};

template <typename Look>
std::unique_ptr<torch::autograd::FunctionPreHook> MakePreHook(Look look) {
  return std::make_unique<PreHook<Look>>(std::move(look));
}

}  // namespace msprobe::capture
