#pragma once

#include <string>

#include "agent/core/config/fields.h"

namespace msprobe::core {

// The JSON schema (draft 2020-12) of config.json, for editors: msprobe/config.schema.json of the installed package. It
// accepts what ParseConfig accepts, but for unknown names, which ParseConfig only warns of. It refuses what is wrong
// with a single value; rules for several fields, and whether a file or directory exists, are left to ParseConfig.
std::string ConfigSchema();

// As JSON; of a list of SliceRule only the empty one.
std::string JsonOf(const FieldValue& value);
// The default of a field, as JSON; empty: there is none.
std::string DefaultOf(const Field& field);

}  // namespace msprobe::core
