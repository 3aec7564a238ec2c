#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "msprobe/v1/record.pb.h"
#include "server/format/dump/dump_value.h"
#include "server/format/json/json_cursor.h"

namespace msprobe::server {

// One tensor as a file describes it, in the words of a block's leaf columns.
struct ImportedLeaf {
  std::vector<int64_t> shape;
  uint32_t flags = 0;        // LeafFlag
  double floating[5] = {};   // max, min, mean, norm, variance
  int64_t extremes[2] = {};  // LEAF_INTEGER: max, min
  uint64_t zero_count = 0;
  std::optional<v1::NonFinite> non_finite;  // without its leaf number
  uint32_t crc32 = 0;
  uint64_t xor64 = 0;
  v1::PayloadRef payload;
};

// One entry of dump.json: the fields of its structure, and their values in depth-first order.
struct ImportedFields {
  v1::Node fields;
  std::vector<ImportedLeaf> leaves;
  std::vector<int64_t> integers;
  std::vector<double> floats;
  std::vector<bool> booleans;
  std::vector<std::string> strings;
};

// The facts that a tensor's own file gives. It is found by its data_name.
struct ImportedPayload {
  v1::PayloadRef ref;
  std::string device;
  double scale = 1;
  int64_t zero_point = 0;
};

// The kinds of numbers that a file has shown so far; its summary_mode follows from them.
struct SeenChecksums {
  bool statistics = false;
  bool crc32 = false;
  bool xor64 = false;
};

// Turns entries of dump.json into fields. Stricter than a reader that only compares: what the store could not hold as
// it stands is refused. One thread at a time.
class EntryParser {
 public:
  // Nothing: the tensor has no file that can be taken. Errors end the import.
  using FindPayload = std::function<absl::StatusOr<std::optional<ImportedPayload>>(
      const std::string& data_name, v1::DType dtype, const std::vector<int64_t>& shape)>;

  // file: for messages. No find_payload: files of tensors are not looked for.
  EntryParser(std::string file, FindPayload find_payload)
      : file_(std::move(file)), find_payload_(std::move(find_payload)) {}

  // Takes the entry's value, which comes next. `wrap`: the value is not a dict of fields but one value, put under the
  // field "debug".
  // InvalidArgument: "FILE: data.NAME.input_args.0.shape: a list of sizes is expected, not the text "abc"".
  absl::StatusOr<ImportedFields> Parse(std::string_view full_name, JsonCursor& entry, bool wrap);

  const SeenChecksums& seen() const { return seen_; }

 private:
  absl::Status ParseEntry(JsonCursor& json, v1::Node& node);
  absl::Status Parse(JsonCursor& json, v1::Node& node);
  absl::Status ParseDict(JsonCursor& json, v1::Node& node);
  // An argument that is no tensor; `text` is the whole leaf.
  void ParseScalar(const DumpLeaf& leaf, std::string_view text, v1::Node& node);
  absl::Status ParseTensor(const DumpLeaf& tensor, v1::Node::TensorSlot& slot);
  // `from`: a tensor, or its "extended".
  void ParseStatistics(const DumpLeaf& from, v1::DType dtype, ImportedLeaf& leaf);
  absl::Status ParseExtended(const DumpLeaf& tensor, v1::DType dtype, v1::Node::TensorSlot& slot, ImportedLeaf& leaf);
  absl::Status ParseExtendedChecksums(const DumpLeaf& extended, ImportedLeaf& leaf) const;
  absl::Status ParseChecksum(const JsonText& value, v1::DType dtype, ImportedLeaf& leaf);
  // The tensor's file and what is kept of its other members, which the file may add to.
  absl::Status ParsePayload(const DumpLeaf& tensor, v1::DType dtype, v1::Node::TensorSlot& slot, ImportedLeaf& leaf);
  absl::Status Expected(std::string_view field, std::string_view what, const JsonText& got) const;
  // Adds the place of the value at hand to what is wrong in it.
  absl::Status At(const absl::Status& status) const;
  absl::Status Malformed(const JsonCursor& json) const;
  void PutText(v1::Node& node, v1::Node::Slot slot, std::string text);
  void PutJson(v1::Node& node, std::string_view text);

  const std::string file_;
  const FindPayload find_payload_;
  std::string where_;  // path of the value at hand
  DumpLeaf leaf_;      // the value at hand
  ImportedFields* out_ = nullptr;
  SeenChecksums seen_;
};

}  // namespace msprobe::server
