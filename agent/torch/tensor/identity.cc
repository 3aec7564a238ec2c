#include "agent/torch/tensor/identity.h"

#include <c10/core/StorageImpl.h>

#include <algorithm>

namespace msprobe::capture {
namespace {

c10::intrusive_ptr_target* Target(const void* storage) {
  return static_cast<c10::StorageImpl*>(const_cast<void*>(storage));
}

constexpr WeakStorage kWeak = {
    .retain = [](const void* storage) { c10::raw::weak_intrusive_ptr::incref(Target(storage)); },
    .release = [](const void* storage) { c10::raw::weak_intrusive_ptr::decref(Target(storage)); },
    .expired = [](const void* storage) { return c10::raw::weak_intrusive_ptr::use_count(Target(storage)) == 0; },
};

// Those stand for memory that others hold, or for none.
bool HasOwnStorage(const at::Tensor& tensor) {
  static constexpr c10::DispatchKeySet kOpaque({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchBatched,
                                                c10::DispatchKey::FuncTorchGradWrapper,
                                                c10::DispatchKey::Functionalize});
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return tensor.layout() == c10::kStrided && !impl->key_set().has_any(kOpaque) && !tensor.is_nested() &&
         impl->has_storage() && !impl->has_symbolic_sizes_strides();
}

uint64_t Mixed(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}

}  // namespace

TensorIdentity IdentityOf(const at::Tensor& tensor) {
  TensorIdentity identity;
  if (!tensor.defined() || !HasOwnStorage(tensor)) return identity;
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::StorageImpl* storage = impl->storage().unsafeGetStorageImpl();
  const at::IntArrayRef sizes = impl->sizes();
  const at::IntArrayRef strides = impl->strides();
  int64_t low = impl->storage_offset();
  int64_t high = low;
  uint64_t layout = Mixed(static_cast<uint64_t>(low), static_cast<uint64_t>(tensor.scalar_type()));
  layout = Mixed(layout, (tensor.is_conj() ? 1U : 0U) | (tensor.is_neg() ? 2U : 0U));
  bool is_empty = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    is_empty = is_empty || sizes[i] == 0;
    const int64_t reach = (sizes[i] - 1) * strides[i];
    (reach < 0 ? low : high) += reach;
    // The stride of a dimension of one is anything.
    layout =
        Mixed(Mixed(layout, static_cast<uint64_t>(sizes[i])), sizes[i] == 1 ? 0 : static_cast<uint64_t>(strides[i]));
  }
  const auto item = static_cast<int64_t>(impl->itemsize());
  identity.storage = StorageReference(static_cast<const c10::intrusive_ptr_target*>(storage), &kWeak);
  identity.memory = storage->data();
  identity.begin = low * item;
  identity.end = is_empty ? identity.begin : (high + 1) * item;
  identity.layout = layout;
  const c10::VariableVersion& version = impl->version_counter();
  identity.has_version = version.enabled();
  if (identity.has_version) identity.version = version.current_version();
  return identity;
}

}  // namespace msprobe::capture
