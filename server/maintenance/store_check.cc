#include "server/maintenance/store_check.h"

#include <xxhash.h>

#include <utility>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

class StoreCheck {
 public:
  explicit StoreCheck(const Store& store) : store_(store) {}

  absl::StatusOr<CheckReport> Run() {
    auto runs = store_.catalogue().Runs();
    if (!runs.ok()) return runs.status();
    for (const storage::RunRow& run : *runs) {
      ++report_.runs;
      CheckSteps(run);
      CheckPayloads(run);
    }
    return std::move(report_);
  }

 private:
  void Note(const std::string& where, const absl::Status& status) {
    if (!status.ok()) report_.damages.push_back({where, std::string(status.message())});
  }

  void CheckSteps(const storage::RunRow& run) {
    auto steps = store_.steps().Of(run.number());
    if (!steps.ok()) return Note(Cat("run ", run.name(), ", its list of steps"), steps.status());
    for (const auto& [key, row] : *steps) {
      ++report_.steps;
      const v1::Rank rank = RankOfCode(key.rank);
      std::string where = Cat("run ", run.name(), ", ", RankName(rank), ", step ", key.step);
      if (key.epoch > 0) where += Cat(", session ", key.epoch);
      auto step = store_.steps().Open(run.name(), key.step, rank, key.epoch);
      if (!step.ok()) {
        Note(where, step.status());
        continue;
      }
      uint64_t records = 0;
      Note(where, (*step)->ForEachRecord([&](const v1::Record&, uint64_t stack) {
        records += 1;
        return stack == 0 ? absl::OkStatus() : (*step)->Stack(stack).status();
      }));
      report_.records += records;
    }
  }

  void CheckPayloads(const storage::RunRow& run) {
    std::vector<std::string> hashes;
    absl::Status listed = store_.database().ForEach(Family::kMeta, MetaPrefix(MetaSpace::kReference, run.number()),
                                                    [&](std::string_view key, std::string_view) {
                                                      hashes.emplace_back(key.substr(5));
                                                      return absl::OkStatus();
                                                    });
    Note(Cat("run ", run.name(), ", its list of payloads"), listed);
    for (const std::string& hash : hashes) {
      XXH3_state_t* state = XXH3_createState();
      XXH3_128bits_reset(state);
      absl::Status status = store_.payloads().Read(hash, [&](std::string_view chunk) {
        XXH3_128bits_update(state, chunk.data(), chunk.size());
        return absl::OkStatus();
      });
      XXH128_canonical_t digest;
      XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state));
      XXH3_freeState(state);
      if (absl::IsNotFound(status)) continue;
      ++report_.payloads;
      const std::string where = Cat("run ", run.name(), ", payload ", Hex(hash));
      Note(where, status);
      const std::string_view found(reinterpret_cast<const char*>(digest.digest), sizeof(digest.digest));
      if (status.ok() && found != hash) Note(where, absl::DataLossError(Cat("its bytes have the hash ", Hex(found))));
    }
  }

  const Store& store_;
  CheckReport report_;
};

}  // namespace

absl::StatusOr<CheckReport> CheckStore(const Store& store) { return StoreCheck(store).Run(); }

}  // namespace msprobe::server
