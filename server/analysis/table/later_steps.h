#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/analysis/table/step_tables.h"

namespace msprobe::server {

// Another source, each step under an earlier number: step N here is its step N + offset. So steps of one run are
// compared with later steps of it.
// Constant; threads: any. The source outlives it.
class LaterSteps final : public StepTables {
 public:
  LaterSteps(const StepTables& source, uint32_t offset) : source_(source), offset_(offset) {
    for (const Place& place : source.places()) {
      if (place.first >= offset) places_.emplace_back(place.first - offset, place.second);
    }
  }

  const std::string& name() const override { return source_.name(); }
  const std::vector<Place>& places() const override { return places_; }
  absl::StatusOr<std::unique_ptr<TableSource>> Read(const Place& place, const DumpReading& reading) const override {
    return source_.Read(Later(place), reading);
  }
  bool HasNonFinite(const Place& place) const override { return source_.HasNonFinite(Later(place)); }
  std::optional<TileSource::Step> FindStored(const Place& place) const override {
    return source_.FindStored(Later(place));
  }
  const TileSource* tiles() const override { return source_.tiles(); }

 private:
  Place Later(const Place& place) const { return {place.first + offset_, place.second}; }

  const StepTables& source_;
  const uint32_t offset_;
  std::vector<Place> places_;
};

}  // namespace msprobe::server
