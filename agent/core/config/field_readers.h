#pragma once

#include "agent/core/config/fields.h"
#include "rapidjson/document.h"

namespace msprobe::core {

// FieldAccess of the fields with rules of their own. A reader sees the fields before it in Fields(), and task and level
// as they will stay.

absl::Status ReadTask(const rapidjson::Value& value, const Field& field, Config* config);
absl::Status ReadLevel(const rapidjson::Value& value, const Field& field, Config* config);
// Null and "" mean every risk level.
absl::Status ReadRiskLevel(const rapidjson::Value& value, const Field& field, Config* config);
// Not empty, and each the forward name of a module: "Module.layers.0.Linear.forward.0".
absl::Status ReadLoadModules(const rapidjson::Value& value, const Field& field, Config* config);
// Two full names, of the kind that the level records.
absl::Status ReadScope(const rapidjson::Value& value, const Field& field, Config* config);
// Each a NamePattern.
absl::Status ReadList(const rapidjson::Value& value, const Field& field, Config* config);
// Empty, or a Selector.
absl::Status ReadSelect(const rapidjson::Value& value, const Field& field, Config* config);
absl::Status ReadDataMode(const rapidjson::Value& value, const Field& field, Config* config);
// "all", or each of forward, backward, input and output that is captured.
FieldValue GiveDataMode(const Config& config, const Field& field);
absl::Status ReadSummaryMode(const rapidjson::Value& value, const Field& field, Config* config);
// An object of whole numbers, of which active is at least 1.
absl::Status ReadSchedule(const rapidjson::Value& value, const Field& field, Config* config);
absl::Status ReadSlice(const rapidjson::Value& value, const Field& field, Config* config);
// At least 1, or -1.
absl::Status ReadDiffNums(const rapidjson::Value& value, const Field& field, Config* config);
// Of task check: not empty.
absl::Status ReadGolden(const rapidjson::Value& value, const Field& field, Config* config);
absl::Status ReadPolicy(const rapidjson::Value& value, const Field& field, Config* config);
// Of task monitor: each the name of a statistic. Empty: the default stays.
absl::Status ReadOps(const rapidjson::Value& value, const Field& field, Config* config);
// Each one of the field's choices.
absl::Status ReadModelSeries(const rapidjson::Value& value, const Field& field, Config* config);
// A Selector of modules.
absl::Status ReadRouters(const rapidjson::Value& value, const Field& field, Config* config);
// Of task grad_probe: numbers that grow, within the range of int64.
absl::Status ReadBounds(const rapidjson::Value& value, const Field& field, Config* config);
// At most kLongestRunName bytes.
absl::Status ReadRun(const rapidjson::Value& value, const Field& field, Config* config);
// An address or several; see ParseServerAddresses.
absl::Status ReadServer(const rapidjson::Value& value, const Field& field, Config* config);
// A directory, "off" or "".
absl::Status ReadSessionMemory(const rapidjson::Value& value, const Field& field, Config* config);
// 0, or enough for an empty store; rounded up to a MiB.
absl::Status ReadDumpQuota(const rapidjson::Value& value, const Field& field, Config* config);
// Any text; nothing is kept.
absl::Status ReadUnused(const rapidjson::Value& value, const Field& field, Config* config);

}  // namespace msprobe::core
