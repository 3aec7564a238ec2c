#include "server/analysis/checkpoint/tensor_difference.h"

#include <xxhash.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>

#include "server/analysis/check/dtype_standard.h"
#include "server/format/dtype_name.h"

namespace msprobe::server {
namespace {

constexpr uint64_t kChunkElements = 128 << 10;

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

// One side: its elements in order, hashed.
class Side {
 public:
  explicit Side(const LogicalTensor& tensor)
      : element_(DTypeSize(tensor.dtype)), reader_(tensor), hash_(XXH3_createState()) {
    XXH3_64bits_reset(hash_.get());
    buffer_.resize(std::min(tensor.elements(), kChunkElements) * element_);
  }

  absl::Status Read(uint64_t count) { return reader_.Read(buffer_.data(), count); }
  void Hash(uint64_t count) { XXH3_64bits_update(hash_.get(), buffer_.data(), count * element_); }
  const char* chunk() const { return buffer_.data(); }
  // The hash of what was equal so far.
  void HashLike(const Side& other) { XXH3_copyState(hash_.get(), other.hash_.get()); }
  uint64_t hash() const { return XXH3_64bits_digest(hash_.get()); }

 private:
  const uint64_t element_;
  LogicalReader reader_;
  std::unique_ptr<XXH3_state_t, FreeState> hash_;
  std::string buffer_;
};

template <typename Word, size_t kWords = 1>
uint64_t Unequal(const char* a, const char* b, uint64_t count) {
  uint64_t unequal = 0;
  for (uint64_t i = 0; i < count; ++i) {
    Word ours[kWords], theirs[kWords];
    std::memcpy(ours, a + i * sizeof(ours), sizeof(ours));
    std::memcpy(theirs, b + i * sizeof(theirs), sizeof(theirs));
    Word difference = 0;
    for (size_t word = 0; word < kWords; ++word) difference |= ours[word] ^ theirs[word];
    unequal += difference != 0;
  }
  return unequal;
}

// Of `count` elements of `size` bytes, those with other bits.
uint64_t DifferentBits(const char* a, const char* b, uint64_t count, size_t size) {
  switch (size) {
    case 1:
      return Unequal<uint8_t>(a, b, count);
    case 2:
      return Unequal<uint16_t>(a, b, count);
    case 4:
      return Unequal<uint32_t>(a, b, count);
    case 8:
      return Unequal<uint64_t>(a, b, count);
    default:
      return Unequal<uint64_t, 2>(a, b, count);  // complex128
  }
}

TensorDescription Described(const LogicalTensor& tensor) {
  TensorDescription description;
  description.dtype = tensor.dtype;
  description.shape = tensor.shape;
  return description;
}

// Whether the golden tensor's dtype is the coarser one.
bool IsCoarser(v1::DType golden, v1::DType target) {
  const DTypeStandard* const ours = StandardOf(target);
  const DTypeStandard* const theirs = StandardOf(golden);
  return ours != nullptr && theirs != nullptr && theirs->mantissa_bits < ours->mantissa_bits;
}

class Pass {
 public:
  Pass(const LogicalTensor& target, const LogicalTensor& golden, const std::function<bool()>& cancelled)
      : target_(target), golden_(golden), cancelled_(cancelled), swapped_(IsCoarser(golden.dtype, target.dtype)) {}

  absl::StatusOr<TensorDifference> Run(const Policy& policy) {
    const uint64_t elements = target_.elements();
    const bool same_type = target_.dtype == golden_.dtype;
    if (!same_type) {
      if (absl::Status status = Start(); !status.ok()) return status;
    }
    Side target(target_), golden(golden_);
    uint64_t different_bits = 0;
    bool unequal = false;
    for (uint64_t at = 0; at < elements; at += kChunkElements) {
      if (cancelled_()) return absl::CancelledError("the client is gone");
      const uint64_t count = std::min(kChunkElements, elements - at);
      if (absl::Status status = target.Read(count); !status.ok()) return status;
      if (absl::Status status = golden.Read(count); !status.ok()) return status;
      const size_t size = DTypeSize(target_.dtype);
      const bool equal = same_type && std::memcmp(target.chunk(), golden.chunk(), count * size) == 0;
      if (!equal && !unequal) {
        unequal = true;
        if (same_type) golden.HashLike(target);
        if (absl::Status status = CatchUp(at); !status.ok()) return status;
      }
      target.Hash(count);
      if (!unequal) continue;
      golden.Hash(count);
      if (same_type && !equal) different_bits += DifferentBits(target.chunk(), golden.chunk(), count, size);
      if (comparison_) Add(target.chunk(), golden.chunk(), count);
    }
    TensorDifference found;
    found.target_hash = target.hash();
    found.golden_hash = unequal ? golden.hash() : found.target_hash;
    if (unequal) Judge(policy, same_type, different_bits, found);
    return found;
  }

 private:
  absl::Status Start() {
    auto started = swapped_ ? AccuracyComparison::Start(Described(golden_), Described(target_))
                            : AccuracyComparison::Start(Described(target_), Described(golden_));
    if (absl::IsUnimplemented(started.status())) return absl::OkStatus();
    if (!started.ok()) return started.status();
    comparison_ = std::make_unique<AccuracyComparison>(*std::move(started));
    return absl::OkStatus();
  }

  void Add(const char* target, const char* golden, uint64_t count) {
    // A complex element counts as two.
    const uint64_t parts = count * (IsComplex(target_.dtype) ? 2 : 1);
    comparison_->Add(swapped_ ? golden : target, swapped_ ? target : golden, parts);
  }

  // Measures the equal chunks before the first that differs.
  absl::Status CatchUp(uint64_t until) {
    if (comparison_) return absl::OkStatus();
    if (absl::Status status = Start(); !status.ok()) return status;
    if (!comparison_ || until == 0) return absl::OkStatus();
    Side again(golden_);
    for (uint64_t at = 0; at < until; at += kChunkElements) {
      if (absl::Status status = again.Read(kChunkElements); !status.ok()) return status;
      Add(again.chunk(), again.chunk(), kChunkElements);
    }
    return absl::OkStatus();
  }

  void Judge(const Policy& policy, bool same_type, uint64_t different_bits, TensorDifference& found) {
    found.different = different_bits;
    found.kind = TensorDifference::Kind::kDiffers;
    if (!comparison_) return;
    const CheckedOutput measured{"", comparison_->Finish(), std::nullopt};
    const Accuracy& accuracy = measured.accuracy;
    const uint64_t mismatches = NonFiniteMismatches(accuracy);
    if (!same_type) found.different = accuracy.different + mismatches;
    found.l2 = accuracy.absolute.rms * std::sqrt(static_cast<double>(accuracy.compared));
    found.cosine = accuracy.cosine;
    found.max_abs = accuracy.absolute.max;
    found.max_rel = accuracy.relative.max;
    found.verdict = policy.judge(measured);
    if (mismatches != 0) {
      found.kind = TensorDifference::Kind::kNan;
    } else if (found.verdict->outcome == Outcome::kPass || found.verdict->outcome == Outcome::kWarning) {
      found.kind = TensorDifference::Kind::kClose;
    }
  }

  const LogicalTensor& target_;
  const LogicalTensor& golden_;
  const std::function<bool()>& cancelled_;
  const bool swapped_;
  std::unique_ptr<AccuracyComparison> comparison_;
};

}  // namespace

absl::StatusOr<TensorDifference> Differ(const LogicalTensor& target, const LogicalTensor& golden, const Policy& policy,
                                        const std::function<bool()>& cancelled) {
  if (target.shape != golden.shape) return TensorDifference{.kind = TensorDifference::Kind::kShape};
  return Pass(target, golden, cancelled).Run(policy);
}

}  // namespace msprobe::server
