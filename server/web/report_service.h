#pragma once

#include <grpcpp/grpcpp.h>

#include <utility>

#include "msprobe/v1/report.grpc.pb.h"
#include "server/query/analysis_context.h"
#include "server/query/query_context.h"

namespace msprobe::server {

// msprobe.v1.Report: the web page's answers as one file.
// Threads: any. Borrowed objects outlive it.
class ReportService final : public v1::Report::Service {
 public:
  ReportService(QueryContext query, AnalysisContext analysis)
      : query_(std::move(query)), analysis_(std::move(analysis)) {}

  grpc::Status MakeReport(grpc::ServerContext* call, const v1::ReportRequest* request,
                          grpc::ServerWriter<v1::ReportResponse>* writer) override;

 private:
  const QueryContext query_;
  const AnalysisContext analysis_;
};

}  // namespace msprobe::server
