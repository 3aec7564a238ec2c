#pragma once

#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string_view>
#include <vector>

namespace msprobe::server {

// Texts that live as long as the arena, in few blocks. One thread at a time; movable, and what it gave stays valid.
class TextArena {
 public:
  std::string_view Add(std::string_view text) { return Join({text}); }

  std::string_view Join(std::initializer_list<std::string_view> parts) {
    size_t size = 0;
    for (std::string_view part : parts) size += part.size();
    if (size == 0) return {};
    char* const start = Take(size);
    char* at = start;
    for (std::string_view part : parts) {
      if (part.empty()) continue;
      std::memcpy(at, part.data(), part.size());
      at += part.size();
    }
    return {start, size};
  }

 private:
  static constexpr size_t kBlock = size_t{256} << 10;

  char* Take(size_t size) {
    if (size > left_) {
      const size_t block = size > kBlock / 4 ? size : kBlock;
      blocks_.push_back(std::make_unique<char[]>(block));
      if (block != kBlock) return blocks_.back().get();  // a block of its own; the open one stays open
      at_ = blocks_.back().get();
      left_ = kBlock;
    }
    char* const taken = at_;
    at_ += size;
    left_ -= size;
    return taken;
  }

  std::vector<std::unique_ptr<char[]>> blocks_;
  char* at_ = nullptr;
  size_t left_ = 0;
};

}  // namespace msprobe::server
