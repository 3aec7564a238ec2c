#pragma once

#include <string>

#include "absl/status/status.h"
#include "server/analysis/graph/rank_merge.h"
#include "server/exporter/file_sink.h"

namespace msprobe::server {

// Writes merged ranks as a dump of the whole model, which can be compared and drawn as any other: dump.json,
// construct.json and stack.json in `directory` ("step0/rank0"). dump.json also has "is_merged", and at each record
// whose values come from several ranks "parallel_merge_info", which says how they were computed. There are no contents
// of tensors. NaN and infinities are bare words, as in any dump.json.
//
// Holds the text of one record at a time. Errors are the sink's.
absl::Status WriteMergedDump(MergedStep& step, const std::string& directory, FileSink& sink);

}  // namespace msprobe::server
