#include "server/jobs/jobs_service.h"

#include <string_view>
#include <utility>

#include "server/ingest/stream/caller_of.h"
#include "server/ingest/stream/ingest_service.h"

namespace msprobe::server {
namespace {

template <typename Response>
grpc::Status AnswerBy(absl::StatusOr<Response> answer, Response* response) {
  if (!answer.ok()) return ToGrpc(answer.status());
  *response = *std::move(answer);
  return grpc::Status::OK;
}

}  // namespace

grpc::Status JobsService::CreateJob(grpc::ServerContext* call, const v1::CreateJobRequest* request, v1::Job* response) {
  Activity::Scope busy(activity_);
  return AnswerBy(queue_->Create(*request, CallerOf(*call)), response);
}

grpc::Status JobsService::AddItems(grpc::ServerContext* call, const v1::AddItemsRequest* request, v1::Job* response) {
  Activity::Scope busy(activity_);
  return AnswerBy(queue_->AddItems(*request, CallerOf(*call)), response);
}

grpc::Status JobsService::ListJobs(grpc::ServerContext*, const v1::ListJobsRequest* request,
                                   v1::ListJobsResponse* response) {
  Activity::Scope busy(activity_);
  return AnswerBy(queue_->List(*request), response);
}

grpc::Status JobsService::ReadResults(grpc::ServerContext* call, const v1::ReadResultsRequest* request,
                                      grpc::ServerWriter<v1::ItemResult>* writer) {
  Activity::Scope busy(activity_);
  return ToGrpc(queue_->ReadResults(
      *request, [call] { return call->IsCancelled(); },
      [writer](const v1::ItemResult& result) { return writer->Write(result); }));
}

grpc::Status JobsService::CancelJob(grpc::ServerContext* call, const v1::CancelJobRequest* request, v1::Job* response) {
  Activity::Scope busy(activity_);
  return AnswerBy(queue_->Cancel(request->job(), CallerOf(*call)), response);
}

grpc::Status JobsService::DeleteJob(grpc::ServerContext* call, const v1::DeleteJobRequest* request,
                                    v1::DeleteJobResponse*) {
  Activity::Scope busy(activity_);
  return ToGrpc(queue_->Delete(request->job(), CallerOf(*call)));
}

grpc::Status JobsService::Lease(grpc::ServerContext* call, const v1::LeaseRequest* request,
                                v1::LeaseResponse* response) {
  Activity::Scope busy(activity_);
  return AnswerBy(queue_->TakeLease(*request, CallerOf(*call), [call] { return call->IsCancelled(); }), response);
}

grpc::Status JobsService::Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest* request,
                                    v1::HeartbeatResponse* response) {
  Activity::Scope busy(activity_);
  return AnswerBy(queue_->Heartbeat(*request), response);
}

grpc::Status JobsService::Finish(grpc::ServerContext*, const v1::FinishRequest* request, v1::FinishResponse* response) {
  Activity::Scope busy(activity_);
  return AnswerBy(queue_->Finish(*request), response);
}

grpc::Status JobsService::Return(grpc::ServerContext*, const v1::ReturnRequest* request, v1::ReturnResponse* response) {
  Activity::Scope busy(activity_);
  return AnswerBy(queue_->Return(*request), response);
}

grpc::Status JobsService::ReadPayload(grpc::ServerContext*, const v1::ReadPayloadRequest* request,
                                      grpc::ServerWriter<v1::PayloadPart>* writer) {
  Activity::Scope busy(activity_);
  return ToGrpc(queue_->ReadPayload(*request, [writer](std::string_view content) {
    v1::PayloadPart part;
    part.set_content(content.data(), content.size());
    return writer->Write(part);
  }));
}

}  // namespace msprobe::server
