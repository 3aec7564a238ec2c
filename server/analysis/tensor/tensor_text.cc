#include "server/analysis/tensor/tensor_text.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "server/analysis/compare/element_load.h"
#include "server/format/cat.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

class TensorText : public TensorFileWriter {
 public:
  TensorText(TensorDescription description, uint64_t elements, ByteSink sink)
      : description_(std::move(description)),
        size_(DTypeSize(description_.dtype)),
        columns_(description_.shape.empty() ? 1 : static_cast<uint64_t>(description_.shape.back())),
        elements_(elements),
        sink_(std::move(sink)) {}

  const TensorDescription& description() const override { return description_; }

  absl::Status Append(std::string_view content) override {
    carry_ += content;
    const size_t whole = carry_.size() / size_;
    const ElementLoad load = LoadOf(description_.dtype);
    double values[kLoadedAtOnce];
    for (size_t at = 0; at < whole; at += kLoadedAtOnce) {
      const size_t block = std::min(kLoadedAtOnce, whole - at);
      if (written_ + block > elements_) return absl::InvalidArgumentError(Cat("more than ", elements_, " elements"));
      load(carry_.data() + at * size_, block, description_, values);
      std::string text;
      for (size_t i = 0; i < block; ++i) {
        char number[32];
        text.append(number, static_cast<size_t>(std::snprintf(number, sizeof(number), "%g", values[i])));
        text += ++written_ % columns_ == 0 ? '\n' : ' ';
      }
      if (absl::Status status = sink_(text); !status.ok()) return status;
    }
    carry_.erase(0, whole * size_);
    return absl::OkStatus();
  }

  absl::Status Finish() override {
    if (written_ == elements_) return absl::OkStatus();
    return absl::InvalidArgumentError(Cat(written_, " elements, not ", elements_));
  }

 private:
  const TensorDescription description_;
  const size_t size_;
  const uint64_t columns_;
  const uint64_t elements_;
  ByteSink sink_;
  uint64_t written_ = 0;
  std::string carry_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TensorFileWriter>> NewTensorTextWriter(TensorDescription description, ByteSink sink) {
  auto size = ContentSize(description);
  if (!size.ok()) return size.status();
  if (LoadOf(description.dtype) == nullptr || IsComplex(description.dtype)) {
    return absl::InvalidArgumentError(Cat(TorchDTypeName(description.dtype), " is not written as text"));
  }
  const uint64_t elements = *size / DTypeSize(description.dtype);
  return std::make_unique<TensorText>(std::move(description), elements, std::move(sink));
}

}  // namespace msprobe::server
