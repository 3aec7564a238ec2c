#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "server/format/series/series_tile.h"
#include "server/format/storage/storage.pb.h"
#include "server/store/change_set.h"
#include "server/store/database.h"

namespace msprobe::server {

// The scalars that programs logged. The points of a batch are one row, in the write that has the batch's watermark.
// When a session has many rows, or ends, they become tiles of one series each, in one write that deletes the rows. A
// series belongs to its run; its points belong to a session, and so to its rank.
//
// Threads: every method from any thread; AddTiling by one thread a session.
class Scalars {
 public:
  // The database must outlive this object.
  explicit Scalars(Database* database) : database_(*database) {}

  // XXH3-64 of the name.
  static uint64_t IdOf(std::string_view name);
  // Needed once a session, with its first point of the series.
  static void AddName(uint32_t run, uint64_t series, std::string_view name, ChangeSet& changes);
  // The rows of a session that are not in tiles yet.
  absl::StatusOr<uint32_t> CountRows(uint32_t run, uint32_t epoch) const;
  // Adds what makes tiles of the session's rows and of one that is not stored, and deletes the rows. `last`: null,
  // there is none. batch: the latest of the session.
  absl::Status AddTiling(uint32_t run, uint32_t epoch, const storage::ScalarsRow* last, uint64_t batch,
                         ChangeSet& changes) const;
  static void AddRunDeletion(uint32_t run, ChangeSet& changes);

  // The names of a run's series, by id.
  using Names = std::map<uint64_t, std::string>;
  absl::StatusOr<Names> ReadNames(uint32_t run) const;

  // The points of these series of one session in these steps, by id, each in order of step. Of points with one step the
  // one that came last is there. A series without points is left out.
  struct Range {
    uint32_t first_step = 0;
    uint32_t last_step = UINT32_MAX;  // included
  };
  using Visit = absl::FunctionRef<absl::Status(uint64_t series, const std::vector<SeriesPoint>& points)>;
  absl::Status Read(uint32_t run, uint32_t epoch, const Names& series, Range range, Visit visit) const;

 private:
  using Points = std::map<uint64_t, std::vector<SeriesPoint>>;
  static void Add(const storage::ScalarsRow& row, Points& points);
  // keys: takes those of the rows; may be null.
  absl::Status ReadRows(uint32_t run, uint32_t epoch, Points& points, std::vector<std::string>* keys) const;

  Database& database_;
};

}  // namespace msprobe::server
