#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/analysis/table/step_table.h"

namespace msprobe::server {

// Which communications of different ranks belong together: the n-th use of a channel (compare/communication.h) on one
// rank and on the others. Holds communication records only.
// Threads: one.
class CommunicationPartners {
 public:
  // What a rank does in a communication. In one with a root (broadcast, gather) the root and the others differ.
  enum class Role : uint8_t { kSend, kReceive, kBoth };

  // A record of a step and rank; records come in order of execution. One that does not communicate is passed over.
  // mark: what partners say of it. number: what ForEach calls it.
  void Add(uint32_t step, uint32_t rank, const StepTable& table, const Entry& entry, std::string_view mark,
           int64_t number);

  struct Partner {
    uint32_t rank = 0;
    std::string_view name;
    std::string_view mark;
  };
  struct Communication {
    Role role = Role::kBoth;
    std::vector<Partner> partners;  // in order of ranks; of one with a root: all for the root, the root for the others
  };
  // Each record that has a partner, with its communications, of which a record of several sends and receives has
  // several. Stops at the first status that is not OK.
  absl::Status ForEach(absl::FunctionRef<absl::Status(int64_t number, uint32_t rank, std::string_view name,
                                                      const std::vector<Communication>& communications)>
                           visit) const;

 private:
  struct Record {
    int64_t number = 0;
    uint32_t step = 0;
    uint32_t rank = 0;
    std::string name;
    std::string operation;
    std::string mark;
    int64_t root = -1;                                   // -1: there is none
    std::vector<std::pair<std::string, uint64_t>> uses;  // channel, and how many uses came before
  };
  using Use = std::pair<uint32_t, std::pair<std::string, uint64_t>>;  // step, channel and number

  Communication Of(const Record& record, const std::vector<size_t>& together) const;

  std::vector<Record> records_;
  std::map<Use, std::vector<size_t>> together_;                                      // of records_
  std::map<std::pair<std::pair<uint32_t, uint32_t>, std::string>, uint64_t> count_;  // by step, rank and channel
};

}  // namespace msprobe::server
