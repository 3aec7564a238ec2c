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

// The types in which the capture layer talks to a session. They are free of protobuf, so that code that includes torch
// can use them. Enumerations have the numbers and meanings of their namesakes in proto/msprobe/v1/record.proto.

enum class RecordKind : uint8_t { kApi = 1, kModule = 2, kParametersGrad = 3, kDebug = 4, kScalars = 5 };
enum class Direction : uint8_t { kForward = 0, kBackward = 1 };

enum class NodeKind : uint8_t { kNone, kBoolean, kInteger, kFloat, kString, kJson, kList, kDict, kTensor };

// The nesting of a record's fields. Leaves take values from the fragment's columns in depth-first order.
struct Node {
  NodeKind kind = NodeKind::kNone;
  std::string key;             // if the parent is a dict
  std::vector<Node> children;  // kList, kDict
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
  uint32_t pass = 0;  // for a backward record: the number of earlier passes over the same forward call in the step
  Node fields;        // a dict
};

struct Frame {
  std::string path;
  uint32_t line = 0;
  std::string function;
  // The source line, if only Python knows it (notebook cells). Empty: the session reads line `line` of the file `path`,
  // not on the caller's thread. A frame whose source cannot be read is left out of the stack.
  std::string source;
};

// Numbers that a session gives to interned definitions. They count from 1 and are valid in that session only.
using StructureId = uint32_t;
using StackId = uint32_t;   // 0: no stack
using ParentId = uint32_t;  // 0: the parent is null

// The content hash of a payload, once it has been computed, and whether a batch has announced it.
// Threads: any; Set is called once.
class PayloadName {
 public:
  void Set(const PayloadDigest& hash) {
    hash_ = hash;
    is_set_.store(true, std::memory_order_release);
  }
  std::string_view hash() const {
    return is_set_.load(std::memory_order_acquire) ? std::string_view(hash_.data(), hash_.size()) : std::string_view();
  }
  // A batch names the payload, so its bytes are sent unless the server has them. A dropped fragment's payload is never
  // announced.
  void SetAnnounced() { announced_ = true; }
  bool announced() const { return announced_; }

 private:
  PayloadDigest hash_{};
  std::atomic<bool> is_set_{false};
  std::atomic<bool> announced_{false};
};

// The bytes of one tensor on the host. Usually a copy, which counts against the session's memory ceiling until it is
// durable. If the hash of the bytes is known already, it may be the tensor's own memory, which is read only if the
// server does not have the bytes.
class Payload {
 public:
  Payload() : Payload(MakePooled<PayloadName>()) {}
  explicit Payload(std::shared_ptr<PayloadName> name) : name_(std::move(name)) {}
  virtual ~Payload() = default;
  virtual std::span<std::byte> bytes() = 0;
  virtual size_t size() { return bytes().size(); }
  // Whether the bytes are a copy that counts against the ceiling.
  virtual bool counted() const { return true; }
  // The offset of bytes() in the session's SharedFile; nullopt: they are not there.
  virtual std::optional<uint64_t> shared_offset() const { return std::nullopt; }
  // Whether bytes() are unchanged since they were captured.
  virtual bool intact() { return true; }
  const std::shared_ptr<PayloadName>& name() const { return name_; }

 private:
  const std::shared_ptr<PayloadName> name_;
};

// Statistics, a checksum or bytes of one tensor that are still on their way from a device. A fragment with such a leaf
// keeps its place in the queue and is packed when they have arrived.
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
  // Rings `bell` when state() has left kUnderWay, which may be at once.
  virtual void RingWhenDone(std::shared_ptr<Doorbell> bell) = 0;
  // Sets the fields of `leaf` that have arrived. Only in kCame, and on one thread.
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
  kTouched = 256,
};

// The numbers and meanings of v1::EdgeKind.
enum class EdgeKind : uint8_t { kUnknown = 0, kOutside, kSame, kView, kChanged, kUnversioned, kSum };

// Which record a tensor came from.
struct Edge {
  EdgeKind kind = EdgeKind::kUnknown;
  uint16_t leaf = 0;     // of the producer's fragment
  int32_t distance = 0;  // this fragment's ordinal minus the producer's

  bool names_producer() const { return kind >= EdgeKind::kSame; }
};

// One tensor leaf of a fragment.
struct Leaf {
  std::span<const int64_t> shape;
  bool has_statistics = false;
  bool is_integer = false;  // has integer_max and integer_min instead of max and min
  bool is_wide = false;     // a 64-bit dtype, whose statistics stay doubles (as do others that do not fit a float)
  bool reused = false;
  double max = 0, min = 0, mean = 0, norm = 0, variance = 0;
  int64_t integer_max = 0, integer_min = 0;
  uint64_t zero_count = 0, nan_count = 0, positive_inf_count = 0, negative_inf_count = 0;
  bool has_finite = true;  // finite_* matter only if there are NaNs or infinities
  double finite_max = 0, finite_min = 0, finite_mean = 0, finite_norm = 0;
  std::optional<uint32_t> crc32;
  std::optional<uint64_t> xor64;
  Edge edge;                         // not part of the digest
  std::shared_ptr<Payload> payload;  // may be null
  std::shared_ptr<PendingReading>
      pending;  // null: everything above is final; else a payload's bytes may also be missing
};

// One fragment. Its spans are borrowed for the duration of a call.
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
  uint32_t digest = 0;  // RecordDigest of everything here; 0: it is computed when the fragment is packed
  std::span<const Leaf> leaves;
  std::span<const int64_t> integers;
  std::span<const double> floats;
  std::span<const bool> booleans;
  std::span<const std::string_view> strings;  // for kString and kJson together, in order
};

}  // namespace msprobe::core
