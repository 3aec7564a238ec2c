#include "agent/torch/tensor/storage_memory.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>

#include <memory>
#include <utility>

#include "agent/core/pool.h"

namespace msprobe::capture {
namespace {

class StorageOwner final : public MemoryOwner {
 public:
  explicit StorageOwner(c10::StorageImpl* storage)
      : storage_(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage)) {}

  bool expired() const override { return storage_.expired(); }
  std::shared_ptr<const void> Hold() const override {
    c10::intrusive_ptr<c10::StorageImpl> held = storage_.lock();
    if (!held) return nullptr;
    const void* const memory = held.get();
    return {memory, [held = std::move(held)](const void*) {}};
  }

 private:
  const c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
};

std::shared_ptr<const MemoryOwner> OwnerOf(const void* storage) {
  return core::MakePooled<StorageOwner>(static_cast<c10::StorageImpl*>(const_cast<void*>(storage)));
}

}  // namespace

RememberedStatistics::Memory MemoryOf(const at::Tensor& tensor) {
  static const c10::DeleterFnPtr kOwnDeleter = c10::GetDefaultCPUAllocator()->raw_deleter();
  c10::StorageImpl* const storage = tensor.unsafeGetTensorImpl()->storage().unsafeGetStorageImpl();
  if (storage->nbytes() < stats::WriteWatch::kSmallest || tensor.is_quantized() || !storage->device().is_cpu() ||
      storage->data_ptr().get_deleter() != kOwnDeleter) {
    return {};
  }
  const bool requires_grad = tensor.requires_grad();
  const bool is_leaf = tensor.is_leaf();
  const bool has_gradient = requires_grad && is_leaf && tensor.unsafeGetTensorImpl()->grad().defined();
  return {.id = storage,
          .bytes = {static_cast<const std::byte*>(storage->data()), storage->nbytes()},
          .is_private = true,
          .lasts = requires_grad && is_leaf,
          .changes = has_gradient || (requires_grad && at::GradMode::is_enabled()),
          .owner_of = OwnerOf};
}

}  // namespace msprobe::capture
