#pragma once

#include <grpcpp/grpcpp.h>

#include "msprobe/v1/jobs.grpc.pb.h"
#include "server/jobs/job_queue.h"
#include "server/metrics/activity.h"

namespace msprobe::server {

// msprobe.v1.Jobs: translates between gRPC and the queue. Borrowed objects outlive it. Threads: any.
class JobsService final : public v1::Jobs::Service {
 public:
  JobsService(JobQueue* queue, Activity* activity) : queue_(queue), activity_(activity) {}

  grpc::Status CreateJob(grpc::ServerContext* call, const v1::CreateJobRequest* request, v1::Job* response) override;
  grpc::Status AddItems(grpc::ServerContext* call, const v1::AddItemsRequest* request, v1::Job* response) override;
  grpc::Status ListJobs(grpc::ServerContext* call, const v1::ListJobsRequest* request,
                        v1::ListJobsResponse* response) override;
  grpc::Status ReadResults(grpc::ServerContext* call, const v1::ReadResultsRequest* request,
                           grpc::ServerWriter<v1::ItemResult>* writer) override;
  grpc::Status CancelJob(grpc::ServerContext* call, const v1::CancelJobRequest* request, v1::Job* response) override;
  grpc::Status DeleteJob(grpc::ServerContext* call, const v1::DeleteJobRequest* request,
                         v1::DeleteJobResponse* response) override;
  grpc::Status Lease(grpc::ServerContext* call, const v1::LeaseRequest* request, v1::LeaseResponse* response) override;
  grpc::Status Heartbeat(grpc::ServerContext* call, const v1::HeartbeatRequest* request,
                         v1::HeartbeatResponse* response) override;
  grpc::Status Finish(grpc::ServerContext* call, const v1::FinishRequest* request,
                      v1::FinishResponse* response) override;
  grpc::Status Return(grpc::ServerContext* call, const v1::ReturnRequest* request,
                      v1::ReturnResponse* response) override;
  grpc::Status ReadPayload(grpc::ServerContext* call, const v1::ReadPayloadRequest* request,
                           grpc::ServerWriter<v1::PayloadPart>* writer) override;

 private:
  JobQueue* const queue_;
  Activity* const activity_;
};

}  // namespace msprobe::server
