#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/format/json/json_writer.h"
#include "server/query/analysis_context.h"
#include "server/query/query_context.h"
#include "server/web/web_query.h"

namespace msprobe::server {

// What a question of the page is answered with: the handlers of the RPCs, never the store itself.
struct WebContext {
  QueryContext query;
  AnalysisContext analysis;
  std::function<bool()> cancelled;                      // any thread
  std::function<bool(size_t done, size_t total)> tell;  // of steps; false: nobody listens
};

// Writes one JSON value. Errors are those of the handlers, and InvalidArgument of parameters.
using WebAnswer = absl::Status (*)(const WebContext& context, const WebQuery& query, JsonWriter& json);

// One file each.
absl::Status AnswerRuns(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerHeatMap(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerOverflow(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerOrigins(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerTrend(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerRecord(const WebContext& context, const WebQuery& query, JsonWriter& json);

struct WebQuestion {
  std::string_view name;  // its path is /api/NAME
  WebAnswer answer = nullptr;
};

std::span<const WebQuestion> WebQuestions();

// A number; NaN and the infinities as strings, which JSON has no numbers for.
void WriteNumber(JsonWriter& json, double value);

}  // namespace msprobe::server
