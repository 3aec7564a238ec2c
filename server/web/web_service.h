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
#include "server/web/model_graphs.h"
#include "server/web/web_question.h"

namespace msprobe::server {

// Serves the web page: its files, and the questions of its script under /api/. Read only.
//
// 1. Whoever reaches the port gets the files. If the server has tokens, a question needs one with the role read.
// 2. The answer to a question is a stream of JSON lines: {"progress": [done, total]} while the work goes on, and at the
//    end {"answer": ..., "missing": "servers that could not be asked"} or {"error": "one line", "status": 404}.
// 3. A question that is refused at once (no token, unknown path, too many questions) gets {"error": ...} with its HTTP
//    status.
// 4. At most kMaxQuestions are answered at the same time, and kOfACaller for one caller (the name of a token, else an
//    address). A question ends when its client goes, and after kLongest.
// Threads: any. Borrowed objects outlive it.
class WebService {
 public:
  static constexpr int kMaxQuestions = 8;
  static constexpr int kOfACaller = 4;
  static constexpr absl::Duration kLongest = absl::Seconds(120);

  // tokens null: no token is needed.
  WebService(QueryContext query, AnalysisContext analysis, Tokens* tokens, RefusalLog* refusals,
             std::function<absl::Time()> now = absl::Now);

  HttpResponse Answer(const HttpRequest& request);

 private:
  class Place;

  // Checks the token and returns the caller.
  absl::StatusOr<std::string> Admit(const HttpRequest& request) const;
  HttpResponse Refuse(std::string_view kind, const std::string& peer, const absl::Status& status) const;
  // Answers the question and sends progress meanwhile.
  void Work(const WebQuestion& question, const WebQuery& query, HttpStream& stream);

  const QueryContext query_;
  const AnalysisContext analysis_;
  Tokens* const tokens_;
  RefusalLog* const refusals_;
  const std::function<absl::Time()> now_;
  ModelGraphs graphs_;
  absl::Mutex mu_;
  std::map<std::string, int> under_way_ ABSL_GUARDED_BY(mu_);  // questions by caller
  int all_under_way_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace msprobe::server
