#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "server/format/json/json_writer.h"
#include "server/query/analysis_context.h"
#include "server/query/query_context.h"
#include "server/web/web_query.h"

namespace msprobe::server {

class ModelGraphs;

// The parts of the server that an answer may use: the handlers of the RPCs, never the store itself.
struct WebContext {
  QueryContext query;
  AnalysisContext analysis;
  ModelGraphs* graphs = nullptr;                        // that were asked for before
  std::function<bool()> cancelled;                      // may be called from any thread
  std::function<bool(size_t done, size_t total)> tell;  // reports progress in steps; false: nobody listens any more
};

// Writes the answer as one JSON value. Errors: those of the handlers, and InvalidArgument for a parameter.
using WebAnswer = absl::Status (*)(const WebContext& context, const WebQuery& query, JsonWriter& json);

// Each question has its own file.
absl::Status AnswerRuns(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerHeatMap(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerOverflow(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerOrigins(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerTrend(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerAlarms(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerScalars(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerVerdict(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerDivergence(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerDifferences(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerModules(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerRun(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerRecord(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerHistogram(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerGraph(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerVerdicts(const WebContext& context, const WebQuery& query, JsonWriter& json);
absl::Status AnswerGraphSearch(const WebContext& context, const WebQuery& query, JsonWriter& json);

struct WebQuestion {
  std::string_view name;  // its path is /api/NAME
  WebAnswer answer = nullptr;
};

std::span<const WebQuestion> WebQuestions();

inline constexpr uint32_t kMaxColumns = 2000;  // of a picture: more than any screen has pixels

// Writes `name` and the spans as [[first, last], ...].
void WriteSpans(JsonWriter& json, const char* name, size_t count,
                absl::FunctionRef<std::pair<uint32_t, uint32_t>(size_t index)> span);

// Writes each name with its text.
void WriteTexts(JsonWriter& json, std::initializer_list<std::pair<const char*, std::string>> texts);

// Writes "notes", the first 20 of them, where there are any.
void WriteNotes(JsonWriter& json, std::span<const std::string> notes);

// Writes a number. NaN and the infinities become strings, because JSON has no numbers for them.
void WriteNumber(JsonWriter& json, double value);

}  // namespace msprobe::server
