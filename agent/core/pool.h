#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <memory_resource>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace msprobe::core {

// Memory for the small objects that the agent keeps for long: interned definitions, module calls until their backward
// pass, hooks. It is not on the program's heap; MappedMemory gives the reason.
//
// Freed blocks are used again, but never returned to the system. Threads: any.
std::pmr::memory_resource* Pool();

// Like std::allocator, but takes memory from Pool().
template <typename T>
struct PoolAllocator {
  using value_type = T;

  PoolAllocator() = default;
  template <typename U>
  PoolAllocator(const PoolAllocator<U>&) {}  // NOLINT(google-explicit-constructor): allocators must convert

  // NOLINTBEGIN(bugprone-sizeof-expression): T may be a pointer
  T* allocate(size_t count) { return static_cast<T*>(Pool()->allocate(count * sizeof(T), alignof(T))); }
  void deallocate(T* at, size_t count) { Pool()->deallocate(at, count * sizeof(T), alignof(T)); }
  // NOLINTEND(bugprone-sizeof-expression)
  template <typename U>
  bool operator==(const PoolAllocator<U>&) const {
    return true;
  }
};

using PooledString = std::basic_string<char, std::char_traits<char>, PoolAllocator<char>>;
template <typename T>
using PooledVector = std::vector<T, PoolAllocator<T>>;
template <typename T>
using PooledDeque = std::deque<T, PoolAllocator<T>>;
template <typename Key, typename Value, typename Hashed = Key>
using PooledMap = absl::flat_hash_map<Key, Value, typename absl::flat_hash_map<Hashed, Value>::hasher,
                                      typename absl::flat_hash_map<Hashed, Value>::key_equal,
                                      PoolAllocator<std::pair<const Key, Value>>>;
// Can be looked up by absl::string_view.
template <typename Value>
using PooledTextMap = PooledMap<PooledString, Value, std::string>;

template <typename T, typename... Arguments>
std::shared_ptr<T> MakePooled(Arguments&&... arguments) {
  return std::allocate_shared<T>(PoolAllocator<T>(), std::forward<Arguments>(arguments)...);
}

// A base class for objects that are made by new in the pool, and may be deleted through another base class.
struct Pooled {
  static void* operator new(size_t size) { return Pool()->allocate(size); }
  static void operator delete(void* object, size_t size) { Pool()->deallocate(object, size); }
};

}  // namespace msprobe::core
