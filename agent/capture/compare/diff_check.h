#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "agent/capture/compare/bench_dump.h"
#include "agent/capture/fragments/fragment_builder.h"

namespace msprobe::capture {

// bench_path: compares each record's checksums with an earlier dump's while the program runs.
//
// A record differs where its inputs equal the other dump's and one of its outputs does not. A record that the other
// dump does not have, or whose inputs differ already, does not count. The tensors of every record are copied when they
// are read, and kept only where the record differs: its fragments lose their payloads until it has ended, and a record
// that differs is emitted again with them. After diff_nums such records nothing is compared or copied any more.
//
// Thread-safe.
class DiffCheck {
 public:
  explicit DiffCheck(int64_t diff_nums) : diff_nums_(diff_nums) {}

  // The dump to compare this step with; null: there is none, nothing is compared.
  void SetBench(std::shared_ptr<const BenchDump> bench);

  // Whether tensors are copied and compared now.
  bool comparing() const;
  // diff_nums differing records have been found.
  bool done() const;

  // A fragment of record `full_name` is about to be emitted. Takes its payloads away, unless it ends a record that
  // differs. Then its payloads stay, and the verdict holds the record's first fragment, to be emitted again.
  struct Verdict {
    bool differs = false;
    std::unique_ptr<FragmentBuilder> held;  // null: nothing was held
    std::string message;                    // where differs: what differs, for the log
  };
  Verdict Check(const std::string& full_name, bool enters, bool exits, FragmentBuilder& builder);

  // Forgets the fragments of records that never ended.
  void EndStep();

 private:
  std::string Compare(const std::string& full_name, const FragmentBuilder* begin, const FragmentBuilder& end) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t diff_nums_;
  mutable absl::Mutex mu_;
  std::shared_ptr<const BenchDump> bench_ ABSL_GUARDED_BY(mu_);
  int64_t found_ ABSL_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<std::string, std::unique_ptr<FragmentBuilder>> held_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::capture
