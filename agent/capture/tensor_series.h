#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "agent/capture/faults.h"
#include "agent/capture/fragments/structure_ids.h"
#include "agent/capture/reading/memory_reader.h"
#include "agent/capture/reading/spread.h"
#include "agent/capture/reading/tensor_source.h"
#include "agent/core/mutex.h"
#include "agent/core/session.h"

namespace msprobe::capture {

// Statistics of tensors over the steps of a training run, as series of scalars.
//
// 1. Read looks at the tensor at once, as it is then. Of a device's tensor the reading is launched, and nobody waits.
// 2. Send puts what was read into fragments of RecordKind::kScalars, of kMostPoints entries at most. Their structure
// has
//    the names of the statistics: the server makes a series NAME:STATISTIC of each tensor NAME and statistic
//    (proto/msprobe/v1/record.proto).
// 3. A name that was read twice counts once, with its later reading.
//
// Thread-safe. Throws nothing: what fails is a fault of the step.
class TensorSeries {
 public:
  static constexpr size_t kMostPoints = 512;

  // All outlive this. statistics: names of msprobe.v1.Statistic in lower case, or of SpreadStatistic: numbers beside
  // the statistics of a tensor in host memory, NAME:STATISTIC too.
  TensorSeries(const std::vector<std::string>& statistics, core::Session* session, TensorSource* source,
               Faults* faults);

  // read: reads the tensor by a TensorSource.
  void Read(std::string_view name, absl::FunctionRef<TensorReading(const MemoryReader& memory)> read);
  // A number beside them, whose series has this name.
  void Add(std::string_view name, double value);
  // Some elements of a parameter before the optimizer steps, and the same ones when it has. Their ratio
  // norm(after - before) / norm(before) is added as update_ratio/NAME; none where the parameter was 0, or is unknown.
  // Of a shard (SHARD names it, behind NAME) the root mean squares of both are added, update_ratio/NAMESHARD:change and
  // :before, of which the server makes the ratio.
  void BeforeUpdate(std::string_view name, std::vector<double> elements);
  void AfterUpdate(std::string_view name, std::string_view shard, std::span<const double> elements);
  void Send(uint32_t step);
  // What was read since the last Send counts for nothing.
  void Forget();

 private:
  struct Point {
    std::string name;
    std::optional<TensorReading> reading;  // nothing: a number
    double value = 0;
  };

  void AddSpread(std::string_view name, const Spread& spread);
  // At so many points those are dropped that a later one of their name replaces.
  static constexpr size_t kCompactAt = 4096;

  static void KeepLastOfEach(std::vector<Point>& points);
  void Keep(Point point);
  void Emit(uint32_t step, std::span<const Point> points);

  const std::string statistics_;                                       // of the server, with commas between
  const std::vector<std::pair<std::string, SpreadStatistic>> spread_;  // with their names
  core::Session& session_;
  TensorSource& source_;
  Faults& faults_;
  const MemoryReader memory_;  // reads the whole of a tensor, and statistics, whatever the configuration captures
  StructureIds structures_;
  core::Mutex mu_;
  std::vector<Point> points_ ABSL_GUARDED_BY(mu_);
  size_t compact_at_ ABSL_GUARDED_BY(mu_) = kCompactAt;
  std::map<std::string, std::vector<double>, std::less<>> before_ ABSL_GUARDED_BY(mu_);
};

}  // namespace msprobe::capture
