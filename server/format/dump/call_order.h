#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "msprobe/v1/record.pb.h"

namespace msprobe::server {

// The calls of a step in the order in which they began, with their parents and stacks: what stack.json and
// construct.json are made of. One thread at a time.
class CallOrder {
 public:
  // Records come in order of ordinal: a module comes after what it contains.
  void Add(const v1::Record& record, uint64_t stack_id);

  struct Call {
    std::string full_name;
    std::string parent;  // empty: null
  };
  // The members of construct.json in the order in which calls began. An API that is the first call in a module stands
  // before that module, as mindstudio-probe has it. A parent that is no record itself ("optimizer") is a call without
  // parent.
  absl::Status ForEachConstructed(absl::FunctionRef<absl::Status(const Call& call)> visit) const;

  struct StackGroup {
    uint64_t stack_id = 0;
    std::vector<std::string_view> names;  // borrowed from this object
  };
  // Forward entries of dump.json that have a stack, by stack, in the order in which calls began.
  std::vector<StackGroup> StackGroups() const;

  // Steps of one run with the same digest (XXH3-128) have the same calls, parents and stacks.
  std::string Digest() const;

 private:
  struct Entry {
    Call call;
    uint64_t stack_id = 0;
    bool api = false;
    bool constructed = false;
    bool stacked = false;
  };

  // Visits each record once; a record's ancestors first, except that with `api_first` an API precedes them.
  void InOrderOfEntry(bool api_first, absl::FunctionRef<void(const Entry& entry)> visit,
                      absl::FunctionRef<void(const std::string& parent)> visit_foreign_parent) const;

  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string, size_t> index_;
};

}  // namespace msprobe::server
