#include "server/web/report_service.h"

#include <string>

#include "server/ingest/stream/ingest_service.h"
#include "server/shards/missing_trailer.h"
#include "server/web/report.h"

namespace msprobe::server {
namespace {

constexpr size_t kPart = 1 << 20;

}  // namespace

grpc::Status ReportService::MakeReport(grpc::ServerContext* call, const v1::ReportRequest* request,
                                       grpc::ServerWriter<v1::ReportResponse>* writer) {
  Activity::Scope busy(query_.activity);
  MissingShards missing;
  WebContext context{query_, analysis_, nullptr, [call] { return call->IsCancelled(); }, nullptr};
  context.query.missing = &missing;
  context.analysis.missing = &missing;
  context.tell = [writer](size_t done, size_t total) {
    v1::ReportResponse response;
    response.mutable_progress()->set_steps_done(done);
    response.mutable_progress()->set_steps_total(total);
    return writer->Write(response);
  };
  ReportQuestion question{request->run(), request->golden()};
  if (!request->run_title().empty()) question.run_title = request->run_title();
  if (!request->golden_title().empty()) question.golden_title = request->golden_title();
  auto report = request->run().empty() ? absl::StatusOr<std::string>(absl::InvalidArgumentError("run is empty"))
                                       : server::MakeReport(context, question);
  if (report.ok()) {
    for (size_t at = 0; at < report->size(); at += kPart) {
      v1::ReportResponse response;
      response.set_content(report->substr(at, kPart));
      if (!writer->Write(response)) break;
    }
  }
  return ToGrpc(AnswerWith(missing, report.status(), call));
}

}  // namespace msprobe::server
