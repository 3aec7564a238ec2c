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
#include "rapidjson/document.h"

namespace msprobe::server {

// One tensor leaf as an imported file describes it: what the leaf columns of a block need.
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

// One entry of dump.json: a structure's fields, and its values in depth-first order.
struct ImportedFields {
  v1::Node fields;
  std::vector<ImportedLeaf> leaves;
  std::vector<int64_t> integers;
  std::vector<double> floats;
  std::vector<bool> booleans;
  std::vector<std::string> strings;
};

// What a tensor's file says, found by its data_name.
struct ImportedPayload {
  v1::PayloadRef ref;
  std::string device;
  double scale = 1;
  int64_t zero_point = 0;
};

// Which checksums a file has shown, from which its summary_mode follows.
struct SeenChecksums {
  bool statistics = false;
  bool crc32 = false;
  bool xor64 = false;
};

// Turns entries of dump.json into fields. One thread at a time.
class EntryParser {
 public:
  // Nothing: the tensor has no file that can be taken. Errors end the import.
  using FindPayload = std::function<absl::StatusOr<std::optional<ImportedPayload>>(
      const std::string& data_name, v1::DType dtype, const std::vector<int64_t>& shape)>;

  // file: for messages. Both functions are borrowed for the parser's life.
  EntryParser(std::string file, FindPayload find_payload)
      : file_(std::move(file)), find_payload_(std::move(find_payload)) {}

  // InvalidArgument: "FILE: data.NAME.input_args.0.shape: a list of sizes is expected, not the text "abc"".
  // `wrap`: the value is not a dict of fields but one value, put under the field "debug".
  absl::StatusOr<ImportedFields> Parse(std::string_view full_name, const rapidjson::Value& entry, bool wrap);

  const SeenChecksums& seen() const { return seen_; }

 private:
  absl::Status Parse(const rapidjson::Value& value, v1::Node& node);
  absl::Status ParseTensor(const rapidjson::Value& object, v1::Node::TensorSlot& slot);
  absl::Status ParseStatistics(const rapidjson::Value& object, v1::DType dtype, ImportedLeaf& leaf);
  absl::Status ParseExtended(const rapidjson::Value& extended, v1::DType dtype, ImportedLeaf& leaf);
  absl::Status ParseChecksum(const rapidjson::Value& value, v1::DType dtype, ImportedLeaf& leaf);
  absl::Status Expected(std::string_view field, std::string_view what, const rapidjson::Value& got) const;
  void PutText(v1::Node& node, v1::Node::Slot slot, std::string text);
  void PutJson(v1::Node& node, const rapidjson::Value& value);

  const std::string file_;
  const FindPayload find_payload_;
  std::string where_;  // path of the value at hand
  ImportedFields* out_ = nullptr;
  SeenChecksums seen_;
};

}  // namespace msprobe::server
