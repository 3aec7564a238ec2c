#pragma once

#include <cstdint>
#include <utility>

namespace msprobe::capture {

// What a framework does with the weak references to its storages.
struct WeakStorage {
  void (*retain)(const void* storage);
  void (*release)(const void* storage);
  // True: the memory is gone, and only weak references keep the object.
  bool (*expired)(const void* storage);
};

// A weak reference to a framework's storage. It keeps no memory of a tensor, but it keeps the storage's object, so that
// no other storage comes to its address. So an address that is held here is an identity.
class StorageReference {
 public:
  StorageReference() = default;
  // The caller's tensor keeps `storage` alive meanwhile.
  StorageReference(const void* storage, const WeakStorage* kind) : storage_(storage), kind_(kind) {
    kind_->retain(storage_);
  }
  StorageReference(const StorageReference& other) : storage_(other.storage_), kind_(other.kind_) {
    if (storage_ != nullptr) kind_->retain(storage_);
  }
  StorageReference(StorageReference&& other) noexcept
      : storage_(std::exchange(other.storage_, nullptr)), kind_(other.kind_) {}
  StorageReference& operator=(StorageReference other) noexcept {
    std::swap(storage_, other.storage_);
    std::swap(kind_, other.kind_);
    return *this;
  }
  ~StorageReference() {
    if (storage_ != nullptr) kind_->release(storage_);
  }

  const void* get() const { return storage_; }
  bool expired() const { return storage_ == nullptr || kind_->expired(storage_); }

 private:
  const void* storage_ = nullptr;
  const WeakStorage* kind_ = nullptr;
};

// The memory that a tensor shows, at one time.
struct TensorIdentity {
  StorageReference storage;      // null: this tensor has none that could be told apart
  const void* memory = nullptr;  // of the storage: another one is put under it by some
  // What the tensor reaches, in bytes from the storage's begin.
  int64_t begin = 0;
  int64_t end = 0;
  uint64_t layout = 0;   // hash of place, sizes, strides and dtype
  uint32_t version = 0;  // grows with each write that the framework knows of
  bool has_version = false;
};

}  // namespace msprobe::capture
