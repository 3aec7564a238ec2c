#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/access/refusal_log.h"
#include "server/access/tokens.h"
#include "server/app/grpc_services.h"
#include "server/app/server_options.h"
#include "server/metrics/metrics.h"
#include "server/web/http_server.h"
#include "server/web/web_service.h"

namespace msprobe::server {

// The HTTP ports of a server: the web page and /metrics, each only if it has an address.
// Threads: one.
class HttpPorts {
 public:
  // Borrows everything; all outlive this.
  HttpPorts(const ServerOptions* options, Metrics* metrics) : options_(*options), metrics_(metrics) {}

  // Serves /metrics, and calls `before_scrape` before each, from any thread. Errors: see HttpServer::Start.
  absl::Status StartMetrics(std::function<void()> before_scrape);
  // Serves the web page, which asks questions as a client of `services` would. `tokens` null: no token is needed.
  absl::Status StartPage(const GrpcServices& services, Tokens* tokens, RefusalLog* refusals);
  // Both are idempotent.
  void StopPage();
  void StopMetrics();

 private:
  HttpResponse AnswerScrape(const HttpRequest& request) const;
  // Counts the connections that an HttpServer cuts.
  std::function<void(std::string_view why)> CountCut(std::string port);

  const ServerOptions& options_;
  Metrics* const metrics_;
  std::function<void()> before_scrape_;
  std::unique_ptr<WebService> page_;
  std::unique_ptr<HttpServer> page_port_;
  std::unique_ptr<HttpServer> metrics_port_;
};

}  // namespace msprobe::server
