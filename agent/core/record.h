#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/core/content_hash.h"
#include "agent/core/pool.h"

namespace msprobe::core {

class Doorbell;
struct Leaf;

// What the capture layer tells a session: plain types, no protobuf, so that code which includes torch can use them.
// The enumerations are numbered as their namesakes in proto/msprobe/v1/record.proto, whose comments define them.

enum class RecordKind : uint8_t { kApi = 1, kModule = 2, kParametersGrad = 3, kDebug = 4 };
enum class Direction : uint8_t { kForward = 0, kBackward = 1 };

enum class NodeKind : uint8_t { kNone, kBoolean, kInteger, kFloat, kString, kJson, kList, kDict, kTensor };

// Nesting of a record's fields. Slots take values from the fragment's columns in depth-first order.
struct Node {
  NodeKind kind = NodeKind::kNone;
  std::string key;             // under a dict
  std::vector<Node> children;  // of a list or dict
  // kTensor:
  std::string type;        // "torch.Tensor"
  uint8_t dtype = 0;       // msprobe.v1.DType
  std::string dtype_name;  // only for DTYPE_OTHER
  std::string device;
  bool requires_grad = false;
  bool is_sparse = false;
  std::string attributes_json;
};

struct Structure {
  std::string name;  // without count and direction
  RecordKind kind = RecordKind::kApi;
  Direction direction = Direction::kForward;
  uint32_t pass = 0;  // of a backward record: how many passes over the same forward call came before in the step
  Node fields;        // a dict
};

struct Frame {
  std::string path;
  uint32_t line = 0;
  std::string function;
  // The source line where the capture layer had to ask Python for it (notebook cells). Empty: the session reads
  // line `line` of file `path`, off the caller's thread; a frame without source is left out of the stack.
  std::string source;
};

// Small numbers that a session gives to what it has interned; valid for that session only. 0 is never given.
using StructureId = uint32_t;
using StackId = uint32_t;   // 0: no stack
using ParentId = uint32_t;  // 0: the parent is null

// The content hash of a payload's bytes, known once it has been computed, and whether they are on their way under it.
// Threads: any; Set once.
class PayloadName {
 public:
  void Set(const PayloadDigest& hash) {
    hash_ = hash;
    is_set_.store(true, std::memory_order_release);
  }
  std::string_view hash() const {
    return is_set_.load(std::memory_order_acquire) ? std::string_view(hash_.data(), hash_.size()) : std::string_view();
  }
  // A batch names the bytes: unlike those of a fragment that was dropped, they are sent or are at the server.
  void SetAnnounced() { announced_ = true; }
  bool announced() const { return announced_; }

 private:
  PayloadDigest hash_{};
  std::atomic<bool> is_set_{false};
  std::atomic<bool> announced_{false};
};

// Host bytes of one tensor. A copy, counted against the session's memory ceiling until it is durable; or the tensor's
// own memory, of bytes whose hash is known already: then they are looked at only if the server does not have them.
class Payload {
 public:
  Payload() : Payload(MakePooled<PayloadName>()) {}
  explicit Payload(std::shared_ptr<PayloadName> name) : name_(std::move(name)) {}
  virtual ~Payload() = default;
  virtual std::span<std::byte> bytes() = 0;
  virtual size_t size() { return bytes().size(); }
  // Whether it is a copy, counted against the ceiling.
  virtual bool counted() const { return true; }
  // Where in the session's SharedFile bytes() begin; nothing: they are not there.
  virtual std::optional<uint64_t> shared_offset() const { return std::nullopt; }
  // Whether bytes() are still what was captured.
  virtual bool intact() { return true; }
  const std::shared_ptr<PayloadName>& name() const { return name_; }

 private:
  const std::shared_ptr<PayloadName> name_;
};

// Numbers, a checksum or bytes of one tensor that are on their way from a device. A fragment with such a leaf stands in
// the queue in its order and is packed when they have come.
//
// Threads: any.
class PendingReading {
 public:
  enum class State : uint8_t {
    kUnderWay,
    kCame,
    kLost,  // the device failed
  };

  virtual ~PendingReading() = default;
  virtual State state() const = 0;
  // `bell` is rung when state() has left kUnderWay, at once where it has already.
  virtual void RingWhenDone(std::shared_ptr<Doorbell> bell) = 0;
  // Sets the fields of `leaf` that came. Only in kCame, and on one thread.
  virtual void Complete(Leaf& leaf) = 0;
};

enum FragmentFlag : uint32_t {
  kEnter = 1,
  kExit = 2,
  kConstructOnly = 4,
  kNoConstruct = 8,
  kRaised = 16,
  kFault = 32,
  kRecompute = 64,
  kUpdate = 128,
};

// One tensor leaf of a fragment.
struct Leaf {
  std::span<const int64_t> shape;
  bool has_statistics = false;
  bool is_integer = false;  // integer_max and integer_min instead of max and min
  bool is_wide = false;     // a 64-bit dtype: keep doubles. (The session also widens what a float cannot hold.)
  bool reused = false;
  double max = 0, min = 0, mean = 0, norm = 0, variance = 0;
  int64_t integer_max = 0, integer_min = 0;
  uint64_t zero_count = 0, nan_count = 0, positive_inf_count = 0, negative_inf_count = 0;
  bool has_finite = true;  // finite_* are looked at only when one of the three counts before is not 0
  double finite_max = 0, finite_min = 0, finite_mean = 0, finite_norm = 0;
  std::optional<uint32_t> crc32;
  std::optional<uint64_t> xor64;
  std::shared_ptr<Payload> payload;         // may be null
  std::shared_ptr<PendingReading> pending;  // null: everything above is final. Else also a payload's bytes are to come
};

// One fragment, borrowed for the length of the call.
struct Fragment {
  uint32_t step = 0;
  uint32_t token = 0;
  StructureId structure = 0;
  uint32_t count = 0;
  uint64_t ordinal = 0;
  uint32_t flags = 0;  // FragmentFlag
  StackId stack = 0;
  ParentId parent = 0;
  uint32_t thread = 0;
  uint32_t digest = 0;  // RecordDigest of all that is here; 0: taken when it is packed
  std::span<const Leaf> leaves;
  std::span<const int64_t> integers;
  std::span<const double> floats;
  std::span<const bool> booleans;
  std::span<const std::string_view> strings;  // of kString and kJson slots together, in order
};

}  // namespace msprobe::core
