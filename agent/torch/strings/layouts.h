#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <ATen/record_function.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/input_metadata.h>

#include <cstddef>
#include <utility>

namespace msprobe::capture {

// Sizes of torch's classes whose members are read by sources with the std::string of today.
using TorchSizes =
    std::index_sequence<sizeof(at::Tensor), sizeof(c10::TensorImpl), sizeof(c10::StorageImpl), sizeof(c10::DataPtr),
                        sizeof(at::QTensorImpl), sizeof(at::PerTensorAffineQuantizer), sizeof(c10::Scalar),
                        sizeof(c10::SymInt), sizeof(c10::Device), sizeof(c10::Stream), sizeof(c10::Event),
                        sizeof(c10::DeviceGuard), sizeof(c10::StreamGuard), sizeof(c10::InferenceMode),
                        sizeof(c10::impl::LocalDispatchKeySet), sizeof(at::RecordFunctionCallback),
                        sizeof(at::StepCallbacks), sizeof(torch::autograd::Node), sizeof(torch::autograd::Edge),
                        sizeof(torch::autograd::InputMetadata), sizeof(torch::autograd::FunctionPreHook),
                        sizeof(torch::autograd::FunctionPostHook)>;

// AreAlike() is defined for the sizes that torch itself has (torch_strings.cc). A call with others does not link.
template <typename Sizes>
struct Layouts {
  static void AreAlike();
};

}  // namespace msprobe::capture
