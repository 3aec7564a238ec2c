// Operators of the device `npu`. Each is the CPU's, run on the stream's thread over the memory's second mapping.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include <optional>
#include <utility>
#include <vector>

#include "tests/npu_backend/device_guard.h"
#include "tests/npu_backend/device_memory.h"

namespace npu_backend {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const seen = DeviceMemory::Get().Allocate(bytes, CurrentStreamId());
    return {seen, seen, &Free, c10::Device(c10::DeviceType::PrivateUse1, 0)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void*, const void*, size_t) const override { TORCH_CHECK(false, "the host may not copy here"); }

 private:
  static void Free(void* seen) { DeviceMemory::Get().Free(seen); }
};

Allocator allocator;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &allocator);

at::Tensor Empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                 std::optional<c10::Device>, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  return at::detail::empty_generic(size, &allocator, kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor EmptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                        std::optional<c10::Layout>, std::optional<c10::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(size, stride, &allocator, kKeys, c10::dtype_or_default(dtype));
}

at::Tensor NewLike(const at::Tensor& model) {
  return at::detail::empty_strided_generic(model.sizes(), model.strides(), &allocator, kKeys, model.scalar_type());
}

bool OnDevice(const at::Tensor& tensor) { return tensor.defined() && tensor.device().is_privateuseone(); }

// What kernels see of a device's tensor. Owns nothing: the stream's order keeps the memory.
at::Tensor AliasOf(const at::Tensor& tensor) {
  auto* const base = static_cast<char*>(DeviceMemory::Get().Alias(tensor.storage().data()));
  void* const first = base == nullptr ? nullptr : base + tensor.storage_offset() * tensor.element_size();
  return at::from_blob(first, tensor.sizes(), tensor.strides(), at::TensorOptions(tensor.scalar_type()));
}

// Zeros in the same layout, to find out what an operator would return.
at::Tensor TrialOf(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), at::TensorOptions(tensor.scalar_type())).zero_();
}

// Applies `change` to every tensor of an argument.
template <typename Change>
c10::IValue Changed(const c10::IValue& value, const Change& change) {
  if (value.isTensor()) return change(value.toTensor());
  if (value.isDevice()) return c10::Device(c10::DeviceType::CPU);
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(change(tensor));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      list.push_back(tensor.has_value() ? std::optional<at::Tensor>(change(*tensor)) : std::nullopt);
    }
    return list;
  }
  return value;
}

at::Tensor ForTrial(const at::Tensor& tensor) { return OnDevice(tensor) ? TrialOf(tensor) : tensor; }
at::Tensor ForKernel(const at::Tensor& tensor) {
  if (OnDevice(tensor)) return AliasOf(tensor);
  return tensor.defined() ? tensor.clone() : tensor;
}

const at::Tensor& Resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<c10::MemoryFormat>) {
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  const std::vector<int64_t> sizes = C10_AS_INTARRAYREF_SLOW(size).vec();
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * impl->itemsize();
  if (bytes > impl->storage().nbytes()) {
    c10::StorageImpl* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(allocator.allocate(bytes));
    storage->set_nbytes(bytes);
  }
  impl->set_sizes_contiguous(sizes);
  return self;
}

// The argument that a result of `schema` is: the one that is written to under the same name.
size_t WrittenArgument(const c10::FunctionSchema& schema, const c10::AliasInfo& alias) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* const other = schema.arguments()[i].alias_info();
    if (other != nullptr && other->isWrite() && other->beforeSets() == alias.beforeSets()) return i;
  }
  TORCH_CHECK(false, "npu_backend: ", schema.name(), " returns an alias of no argument");
}

// The results of operators like nonzero are as large as the values say.
bool ShapesDependOnValues(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments) {
  if (!op.hasTag(at::Tag::dynamic_output_shape)) return false;
  bool by_mask = true;
  for (const c10::IValue& argument : arguments) {
    if (!argument.isOptionalTensorList()) continue;
    by_mask = false;
    for (const std::optional<at::Tensor>& index : argument.toOptionalTensorVector()) {
      by_mask = by_mask || (index.has_value() && index->defined() && index->scalar_type() == c10::kBool);
    }
  }
  return by_mask;
}

// Waits for the stream and runs a functional operator on the caller's thread.
void RunNow(const c10::OperatorHandle& op, const std::vector<c10::IValue>& given, c10::Stack* stack) {
  c10::Stack arguments;
  for (const c10::IValue& argument : given) arguments.push_back(Changed(argument, ForKernel));
  ++Counters::Get().kernels;
  CurrentStream().Synchronize();
  op.callBoxed(&arguments);
  for (const c10::IValue& result : arguments) {
    stack->push_back(Changed(result, [](const at::Tensor& tensor) {
      const at::Tensor on_device = NewLike(tensor);
      AliasOf(on_device).copy_(tensor);
      return on_device;
    }));
  }
}

// Runs an operator that has no kernel of its own. A trial on zeros says, on the caller's thread, what shapes come out;
// the stream's thread does the work.
void Fallback(const c10::OperatorHandle& op, c10::Stack* stack) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  const std::vector<c10::IValue> given(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
  stack->resize(stack->size() - count);

  if (ShapesDependOnValues(op, given)) return RunNow(op, given, stack);
  c10::Stack trial;
  for (const c10::IValue& argument : given) trial.push_back(Changed(argument, ForTrial));
  const c10::Stack trial_arguments = trial;
  op.callBoxed(&trial);

  bool returns_numbers = false;
  std::vector<c10::IValue> results;
  std::vector<std::vector<at::Tensor>> targets;  // of each result, where the kernel's is to be put; none if written to
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    targets.emplace_back();
    if (const c10::AliasInfo* const alias = schema.returns()[i].alias_info()) {
      TORCH_CHECK(alias->isWrite(), "npu_backend: no kernel for the view ", schema.name());
      const size_t argument = WrittenArgument(schema, *alias);
      const at::Tensor out = given[argument].isTensor() ? given[argument].toTensor() : at::Tensor();
      if (OnDevice(out) && out.sizes() != trial_arguments[argument].toTensor().sizes()) {
        Resize(out, c10::fromIntArrayRefSlow(trial_arguments[argument].toTensor().sizes()), std::nullopt);
      }
      results.push_back(given[argument]);
      continue;
    }
    results.push_back(Changed(trial[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return tensor;
      const at::Tensor result = NewLike(tensor);
      targets.back().push_back(AliasOf(result));
      return result;
    }));
    if (!trial[i].isTensor() && !trial[i].isTensorList()) returns_numbers = true;
  }

  if (returns_numbers) return RunNow(op, given, stack);
  c10::Stack arguments;
  for (const c10::IValue& argument : given) arguments.push_back(Changed(argument, ForKernel));
  ++Counters::Get().kernels;
  CurrentStream().Enqueue([op, arguments = std::move(arguments), targets = std::move(targets)]() mutable {
    const at::AutoDispatchBelowADInplaceOrView guard;
    op.callBoxed(&arguments);
    for (size_t i = 0; i < targets.size(); ++i) {
      size_t next = 0;
      if (targets[i].empty()) continue;
      Changed(arguments[i], [&](const at::Tensor& tensor) {
        if (tensor.defined()) targets[i][next++].copy_(tensor);
        return tensor;
      });
    }
  });
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

at::Tensor CopyFrom(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const auto enqueue = [](at::Tensor source, at::Tensor target) {
    CurrentStream().Enqueue([source = std::move(source), target = std::move(target)] {
      const at::AutoDispatchBelowADInplaceOrView guard;
      target.copy_(source);
    });
  };
  if (OnDevice(to)) {
    if (OnDevice(from)) {
      ++Counters::Get().kernels;
    } else {
      ++Counters::Get().host_to_device;
    }
    enqueue(ForKernel(from), AliasOf(to));
    return to;
  }
  if (non_blocking && to.is_pinned()) {
    ++Counters::Get().device_to_host;
    // Borrowed, as a device does: whoever asked keeps the host's memory until an event says that the copy is done.
    enqueue(AliasOf(from), at::from_blob(to.data_ptr(), to.sizes(), to.strides(), to.options().pinned_memory(false)));
    return to;
  }
  ++Counters::Get().waiting_device_to_host;
  enqueue(AliasOf(from), to);
  CurrentStream().Synchronize();
  return to;
}

at::Scalar LocalScalar(const at::Tensor& self) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  CurrentStream().Synchronize();
  return at::_local_scalar_dense(AliasOf(self));
}

at::Tensor View(const at::Tensor& self, c10::SymIntArrayRef size) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(size));
}

at::Tensor AsStrided(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                     std::optional<c10::SymInt> offset) {
  return at::native::as_strided_tensorimpl(
      self, C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
      offset.has_value() ? std::optional<int64_t>(offset->expect_int()) : std::nullopt);
}

at::Tensor ReshapeAlias(const at::Tensor& self, c10::SymIntArrayRef size, c10::SymIntArrayRef stride) {
  return AsStrided(self, size, stride, std::nullopt);
}

void RecordStream(at::Tensor&, c10::Stream) {}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &Empty);
  m.impl("empty_strided", &EmptyStrided);
  m.impl("as_strided", &AsStrided);
  m.impl("view", &View);
  m.impl("_reshape_alias", &ReshapeAlias);
  m.impl("resize_", &Resize);
  m.impl("record_stream", &RecordStream);
  m.impl("_copy_from", &CopyFrom);
  m.impl("_local_scalar_dense", &LocalScalar);
  // The CPU's, so that a model computes the same bits: without it, a composition of other operators.
  m.impl("native_layer_norm", torch::CppFunction::makeFromBoxedFunction<&Fallback>());
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&Fallback>()); }

// What tests steer the device with: torch.ops.npu_backend.*.
TORCH_LIBRARY(npu_backend, m) {
  m.def("counters() -> int[]", [] {
    const Counters& counters = Counters::Get();
    return std::vector<int64_t>{counters.allocations,      counters.host_to_device,
                                counters.device_to_host,   counters.waiting_device_to_host,
                                counters.synchronizations, counters.kernels};
  });
  m.def("reset() -> ()", [] { Counters::Get().Reset(); });
  m.def("hold(bool held) -> ()", [](bool held) { Stream::Hold(held); });
  // What no host may do: it dies.
  m.def("touch(Tensor self) -> int", [](const at::Tensor& self) {
    return static_cast<int64_t>(*static_cast<const volatile char*>(self.storage().data()));
  });
}

}  // namespace
}  // namespace npu_backend
