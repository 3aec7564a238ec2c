#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/access/refusal_log.h"
#include "server/access/tokens.h"
#include "server/query/analysis_context.h"
#include "server/query/query_context.h"
#include "server/web/http_server.h"
#include "server/web/web_question.h"

namespace msprobe::server {

// The web page: its files, and what its script asks under /api/. Read only.
//
// 1. The files are everybody's who reaches the port; with tokens, a question wants one of the role read.
// 2. A question is answered by lines of JSON as it is worked on: {"progress": [done, total]}, at last {"answer": ...,
//    "missing": "servers that could not be asked"} or {"error": "one line", "status": 404}.
// 3. What is refused before (no token, no such path, too many questions) is {"error": ...} under its HTTP status.
// 4. At most kMaxQuestions are worked on at once, of them kOfACaller of one (a token by its name, else an
//    address); each ends when its client goes, and after kLongest.
// Threads: any. What is given outlives it.
class WebService {
 public:
  static constexpr int kMaxQuestions = 8;
  static constexpr int kOfACaller = 4;
  static constexpr absl::Duration kLongest = absl::Seconds(120);

  // tokens null: none are asked for.
  WebService(QueryContext query, AnalysisContext analysis, Tokens* tokens, RefusalLog* refusals,
             std::function<absl::Time()> now = absl::Now);

  HttpResponse Answer(const HttpRequest& request);

 private:
  class Place;

  // Who asks.
  absl::StatusOr<std::string> Admit(const HttpRequest& request) const;
  HttpResponse Refuse(std::string_view kind, const std::string& peer, const absl::Status& status) const;
  // Works while it sends.
  void Work(const WebQuestion& question, const WebQuery& query, HttpStream& stream);

  const QueryContext query_;
  const AnalysisContext analysis_;
  Tokens* const tokens_;
  RefusalLog* const refusals_;
  const std::function<absl::Time()> now_;
  absl::Mutex mu_;
  std::map<std::string, int> under_way_ ABSL_GUARDED_BY(mu_);  // questions by caller
  int all_under_way_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace msprobe::server
