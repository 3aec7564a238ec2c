#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "server/format/checkpoint/logical_tensor.h"
#include "server/format/tensor_file/pickle_tree.h"

namespace msprobe::server {

// A zip that torch.save wrote, as a file or as a part of one: its values, and where its storages lie.
// Threads: constant after Open.
class TorchArchive {
 public:
  // The zip is bytes [offset, offset + size) of the file. Reads no elements. InvalidArgument: it is none, or its
  // storages are compressed or big-endian.
  static absl::StatusOr<TorchArchive> Open(const std::string& path, uint64_t offset, uint64_t size);
  static absl::StatusOr<TorchArchive> Open(const std::string& path);  // the whole file

  const PickleTree& tree() const { return tree_; }
  // What a value is if it is a tensor, a Parameter, or one with attributes of its own. Nothing: something else.
  // InvalidArgument: a tensor whose storage is not there, or too short for it.
  absl::StatusOr<std::optional<LogicalTensor>> TensorAt(const PickleValue& value) const;

 private:
  struct Storage {
    uint64_t offset = 0;  // in the file
    uint64_t size = 0;
  };

  std::string path_;
  PickleTree tree_;
  std::map<std::string, Storage, std::less<>> storages_;
};

// Tensors below a value, by their keys joined with dots. Takes what it finds under `prefix`.
// notes: what else is there that might have been a tensor: "calls torch.distributed.tensor DTensor".
absl::Status CollectTensors(const TorchArchive& archive, const PickleValue& value, const std::string& prefix,
                            std::map<std::string, LogicalTensor>& tensors, std::set<std::string>& notes);

}  // namespace msprobe::server
