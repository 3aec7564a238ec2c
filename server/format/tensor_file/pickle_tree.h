#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace msprobe::server {

// One value of a pickle. Values name each other by index in their PickleTree; 0 is None.
struct PickleValue {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kBytes,
    kTuple,
    kList,
    kDict,  // also an OrderedDict
    kSet,
    kGlobal,      // text: "module name"
    kObject,      // what callable(*arguments) would give, if anybody called it
    kPersistent,  // items: its id
    kLong,        // an integer beyond 64 bits
  };
  using Index = uint32_t;

  Kind kind = Kind::kNone;
  int64_t integer = 0;  // of kInt and kBool
  double real = 0;
  std::string text = {};
  std::vector<Index> items = {};  // of a dict, and of an object that was filled like one: key, value, key, ...
  Index callable = 0;
  Index arguments = 0;
  Index state = 0;  // what BUILD brought
};

// A pickle as a tree of values. Nothing is imported and nothing is called: a name is a text, a call is a record of it.
// It reads the opcodes that pickle's protocols 2 to 5 write by themselves, and its error names any other. Bytes may be
// hostile: values are bounded, but they may contain themselves, so that a walk has to bound its depth.
// Threads: constant after Parse.
class PickleTree {
 public:
  using Index = PickleValue::Index;

  static constexpr size_t kMaxValues = 1 << 22;

  // InvalidArgument: the bytes are no such pickle, or one of more than max_values values; "its pickle is cut off".
  static absl::StatusOr<PickleTree> Parse(std::string_view pickle, size_t max_values = kMaxValues);

  const PickleValue& root() const { return values_[root_]; }
  const PickleValue& at(Index index) const { return values_[index]; }
  // In the order in which the pickle makes them; the first is None.
  const std::vector<PickleValue>& values() const { return values_; }
  // Of a dict, or of an object by the dict of its state. Null: no such key.
  const PickleValue* Find(const PickleValue& value, std::string_view key) const;
  // The name that an object calls: "torch._utils _rebuild_tensor_v2". Empty: no object, or no name.
  std::string_view CalledBy(const PickleValue& value) const;

 private:
  friend class PickleReader;

  std::vector<PickleValue> values_;
  Index root_ = 0;
};

}  // namespace msprobe::server
