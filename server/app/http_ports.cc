#include "server/app/http_ports.h"

#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/metrics/log.h"

namespace msprobe::server {
namespace {

// The time for one scrape in all. Scrapers give up after ten seconds.
constexpr absl::Duration kScrape = absl::Seconds(30);
constexpr int kScrapes = 2;  // at the same time

}  // namespace

absl::Status HttpPorts::StartMetrics(std::function<void()> before_scrape) {
  if (options_.metrics_listen.empty()) return absl::OkStatus();
  before_scrape_ = std::move(before_scrape);
  auto port = HttpServer::Start({.flag = "metrics_listen",
                                 .address = options_.metrics_listen,
                                 .longest = kScrape,
                                 .workers = kScrapes,
                                 .on_cut = CountCut("metrics")},
                                [this](const HttpRequest& request) { return AnswerScrape(request); });
  if (!port.ok()) return port.status();
  metrics_port_ = *std::move(port);
  return absl::OkStatus();
}

HttpResponse HttpPorts::AnswerScrape(const HttpRequest& request) const {
  if (request.path != "/metrics") return {404, "text/plain", "the metrics are at /metrics\n", nullptr};
  return {200, "text/plain; version=0.0.4; charset=utf-8", "", [this](HttpStream& stream) {
            const absl::Time began = absl::Now();
            before_scrape_();
            stream.Write(metrics_->Text());
            metrics_->Observe(Metric::kScrapeSeconds, absl::ToDoubleSeconds(absl::Now() - began));
          }};
}

absl::Status HttpPorts::StartPage(const GrpcServices& services, Tokens* tokens, RefusalLog* refusals) {
  if (options_.web_listen.empty()) return absl::OkStatus();
  AnalysisContext analysis = services.analysis();
  analysis.paths_allowed = false;
  page_ = std::make_unique<WebService>(services.query(), analysis, tokens, refusals);
  auto port = HttpServer::Start({.flag = "web_listen",
                                 .address = options_.web_listen,
                                 .tls_cert = options_.security.tls_cert,
                                 .tls_key = options_.security.tls_key,
                                 .tls_client_ca = options_.security.tls_client_ca,
                                 .on_cut = CountCut("web")},
                                [this](const HttpRequest& request) { return page_->Answer(request); });
  if (!port.ok()) return port.status();
  page_port_ = *std::move(port);
  LogInfo("web page at http{}://{}/", options_.security.tls_cert.empty() ? "" : "s", page_port_->address());
  return absl::OkStatus();
}

void HttpPorts::StopPage() {
  if (page_port_ != nullptr) page_port_->Stop();
}

void HttpPorts::StopMetrics() {
  if (metrics_port_ != nullptr) metrics_port_->Stop();
}

std::function<void(std::string_view)> HttpPorts::CountCut(std::string port) {
  return [this, port = std::move(port)](std::string_view why) {
    metrics_->Add(Metric::kConnectionsCut, 1, {port, std::string(why)});
  };
}

}  // namespace msprobe::server
