#include "server/web/web_service.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "server/format/cat.h"
#include "server/web/assets.h"

namespace msprobe::server {
namespace {

constexpr auto kQuestions = std::to_array<WebQuestion>({
    {"runs", AnswerRuns},
    {"run", AnswerRun},
    {"verdict", AnswerVerdict},
    {"divergence", AnswerDivergence},
    {"differences", AnswerDifferences},
    {"modules", AnswerModules},
    {"heat_map", AnswerHeatMap},
    {"overflow", AnswerOverflow},
    {"origins", AnswerOrigins},
    {"trend", AnswerTrend},
    {"scalars", AnswerScalars},
    {"record", AnswerRecord},
    {"histogram", AnswerHistogram},
    {"graph", AnswerGraph},
    {"graph_search", AnswerGraphSearch},
    {"verdicts", AnswerVerdicts},
    {"alarms", AnswerAlarms},
});

int HttpStatusOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
      return 400;
    case absl::StatusCode::kUnauthenticated:
      return 401;
    case absl::StatusCode::kPermissionDenied:
      return 403;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
      return 503;
    case absl::StatusCode::kDeadlineExceeded:
      return 504;
    default:
      return 500;
  }
}

std::string ErrorLine(const absl::Status& status) {
  JsonWriter json(/*strict=*/true);
  json.StartObject();
  json.Name("error");
  json.Text(StdView(status.message()));
  json.Name("status");
  json.Int(HttpStatusOf(status.code()));
  json.EndObject();
  return json.Take() + "\n";
}

}  // namespace

// Counts one question as under way, as long as it lives.
class WebService::Place {
 public:
  Place(WebService* service, std::string caller) : service_(service), caller_(std::move(caller)) {
    absl::MutexLock lock(&service_->mu_);
    of_caller_ = ++service_->under_way_[caller_];
    Count(1);
  }
  ~Place() {
    absl::MutexLock lock(&service_->mu_);
    if (--service_->under_way_[caller_] == 0) service_->under_way_.erase(caller_);
    Count(-1);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  bool fits() const { return of_all_ <= kMaxQuestions && of_caller_ <= kOfACaller; }

 private:
  void Count(int more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mu_) {
    of_all_ = service_->all_under_way_ += more;
    service_->query_.metrics->Set(Metric::kWebUnderWay, of_all_);
  }

  WebService* const service_;
  const std::string caller_;
  int of_all_ = 0, of_caller_ = 0;
};

std::span<const WebQuestion> WebQuestions() { return kQuestions; }

void WriteSpans(JsonWriter& json, const char* name, size_t count,
                absl::FunctionRef<std::pair<uint32_t, uint32_t>(size_t index)> span) {
  json.Name(name);
  json.StartArray();
  for (size_t i = 0; i < count; ++i) {
    const auto [first, last] = span(i);
    json.StartArray();
    json.Uint(first);
    json.Uint(last);
    json.EndArray();
  }
  json.EndArray();
}

void WriteTexts(JsonWriter& json, std::initializer_list<std::pair<const char*, std::string>> texts) {
  for (const auto& [name, text] : texts) {
    json.Name(name);
    json.Text(text);
  }
}

void WriteNotes(JsonWriter& json, std::span<const std::string> notes) {
  constexpr size_t kMost = 20;
  if (notes.empty()) return;
  json.Name("notes");
  json.StartArray();
  const size_t shown = notes.size() > kMost ? kMost - 1 : notes.size();
  for (const std::string& note : notes.first(shown)) json.Text(note);
  if (shown < notes.size()) json.Text(Cat("and ", notes.size() - shown, " more notes"));
  json.EndArray();
}

void WriteNumber(JsonWriter& json, double value) {
  if (std::isfinite(value)) {
    json.Double(value);
  } else {
    json.Text(std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
  }
}

WebService::WebService(QueryContext query, AnalysisContext analysis, Tokens* tokens, RefusalLog* refusals,
                       std::function<absl::Time()> now)
    : query_(std::move(query)),
      analysis_(std::move(analysis)),
      tokens_(tokens),
      refusals_(refusals),
      now_(std::move(now)) {}

HttpResponse WebService::Answer(const HttpRequest& request) {
  if (const std::optional<WebAsset> asset = FindAsset(request.path); asset.has_value()) {
    query_.metrics->Add(Metric::kWebRequests, 1, {"page", "ok"});
    return {200, std::string(asset->type), std::string(asset->content), nullptr};
  }
  const auto question = std::find_if(kQuestions.begin(), kQuestions.end(), [&](const WebQuestion& known) {
    return request.path == Cat("/api/", known.name);
  });
  const std::string_view kind = question == kQuestions.end() ? "unknown" : question->name;
  if (question == kQuestions.end()) {
    return Refuse(kind, request.peer, absl::NotFoundError("there is nothing under this path; the page is at /"));
  }
  absl::StatusOr<std::string> caller = Admit(request);
  if (!caller.ok()) return Refuse(kind, request.peer, caller.status());
  auto place = std::make_shared<Place>(this, *std::move(caller));
  if (!place->fits()) {
    return Refuse(kind, request.peer,
                  absl::ResourceExhaustedError(Cat("this server works on ", kMaxQuestions, " questions, or on ",
                                                   kOfACaller, " of yours, already; ask again soon")));
  }
  return {200, "application/x-ndjson", "",
          [this, question = &*question, place, query = WebQuery(request.query)](HttpStream& stream) {
            Work(*question, query, stream);
          }};
}

absl::StatusOr<std::string> WebService::Admit(const HttpRequest& request) const {
  if (tokens_ == nullptr) return request.peer;
  if (request.bearer.empty()) return absl::UnauthenticatedError("this server wants a token of the role read");
  auto bearer = tokens_->Find(request.bearer);
  if (!bearer.ok()) return absl::UnauthenticatedError("this server does not know the token");
  if (!bearer->Has(Role::kRead)) {
    return absl::PermissionDeniedError(Cat("the token of \"", bearer->name, "\" does not have the role read"));
  }
  return "token " + bearer->name;
}

HttpResponse WebService::Refuse(std::string_view kind, const std::string& peer, const absl::Status& status) const {
  query_.metrics->Add(Metric::kWebRequests, 1, {std::string(kind), "refused"});
  if (absl::IsUnauthenticated(status)) query_.metrics->Add(Metric::kCallsDenied, 1, {"unauthenticated"});
  if (absl::IsPermissionDenied(status)) query_.metrics->Add(Metric::kCallsDenied, 1, {"permission_denied"});
  refusals_->Note(Cat("/api/", kind), peer, StdView(status.message()));
  return {HttpStatusOf(status.code()), "application/json", ErrorLine(status), nullptr};
}

void WebService::Work(const WebQuestion& question, const WebQuery& query, HttpStream& stream) {
  Activity::Scope busy(query_.activity);
  const absl::Time began = now_();
  MissingShards missing;
  WebContext context{query_, analysis_, &graphs_, nullptr, nullptr};
  context.query.missing = &missing;
  context.analysis.missing = &missing;
  const auto late = [&] { return now_() - began > kLongest; };
  context.cancelled = [&] { return stream.gone() || late(); };
  context.tell = [&](size_t done, size_t total) {
    return stream.Write(Cat("{\"progress\":[", done, ",", total, "]}\n")) && !late();
  };
  JsonWriter json(/*strict=*/true);
  json.StartObject();
  json.Name("answer");
  absl::Status status = question.answer(context, query, json);
  if (status.ok()) {
    json.Name("missing");
    json.Text(missing.Text());
    json.EndObject();
  } else if (!stream.gone() && late()) {
    status = absl::DeadlineExceededError(
        Cat("this took longer than ", absl::ToInt64Seconds(kLongest), " s; ask for fewer steps or tensors"));
  } else if (absl::IsNotFound(status) && !missing.empty()) {
    status = absl::UnavailableError(Cat(status.message(), "; not asked: ", missing.Text()));
  }
  const bool sent = stream.Write(status.ok() ? json.Take() + "\n" : ErrorLine(status));
  query_.metrics->Observe(Metric::kWebSeconds, absl::ToDoubleSeconds(now_() - began));
  query_.metrics->Add(Metric::kWebRequests, 1,
                      {std::string(question.name), !sent         ? "cancelled"
                                                   : status.ok() ? "ok"
                                                                 : "error"});
}

}  // namespace msprobe::server
