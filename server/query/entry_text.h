#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/analysis/table/table_source.h"
#include "server/store/record_source.h"

namespace msprobe::server {

// One entry of a step as a dump shows it.
struct EntryText {
  std::string json;                  // its value in dump.json; empty: the dump has no such entry
  std::vector<std::string> modules;  // around it, by construct.json: the outermost first, the entry itself last
};

// InvalidArgument: "FILE: line 3, column 7: what is wrong". NotFound: a file is gone.
absl::StatusOr<EntryText> ReadEntryText(const DumpFiles& files, std::string_view name);
// As the step's export would have it. Holds the JSON of the whole step meanwhile.
absl::StatusOr<EntryText> ReadEntryText(RecordSource& step, std::string_view name);

}  // namespace msprobe::server
