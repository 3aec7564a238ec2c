#pragma once

#include <set>
#include <string_view>

#include "absl/status/status.h"
#include "agent/core/config/config.h"

namespace msprobe::core {

// Names of the fields of the top and of the task's section that a configuration holds, not null.
using GivenFields = std::set<std::string_view>;

// The rules for more than one field, once each of them has been read. Refuses two fields of which one undoes the other:
// InvalidArgument names both. Settles what follows from several fields, and adds warnings.
absl::Status CheckRules(const GivenFields& given, Config* config);

// A task that has no level L1 or debug is taken at level mix, with a warning. Task monitor captures modules unless
// told.
void SettleLevel(const GivenFields& given, Config* config);

}  // namespace msprobe::core
