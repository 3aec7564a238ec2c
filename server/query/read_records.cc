#include <fnmatch.h>

#include "absl/container/flat_hash_map.h"
#include "server/format/cat.h"
#include "server/query/query_context.h"

namespace msprobe::server {

namespace {

// A server that is alone finds the step by its key, however many the run has.
absl::StatusOr<std::unique_ptr<RecordSource>> OpenOne(const QueryContext& context,
                                                      const v1::ReadRecordsRequest& request) {
  auto epoch = request.has_epoch() ? std::optional<uint32_t>(request.epoch()) : std::nullopt;
  if (context.peers == nullptr)
    return context.store->steps().Open(request.run(), request.step(), request.rank(), epoch);
  auto view = RunView::Open(context.shards(), request.run());
  if (!view.ok()) return view.status();
  return view->Records(request.step(), request.rank(), epoch);
}

}  // namespace

absl::Status ReadRecords(const QueryContext& context, const v1::ReadRecordsRequest& request,
                         const Send<v1::Record>& send) {
  auto reader = OpenOne(context, request);
  if (!reader.ok()) return reader.status();

  auto wanted = [&](const std::string& name, uint32_t token) {
    if (request.has_token() && token != request.token()) return false;
    return request.name_glob().empty() || fnmatch(request.name_glob().c_str(), name.c_str(), 0) == 0;
  };
  absl::flat_hash_map<uint64_t, std::vector<v1::Frame>> stacks;
  return (*reader)->ForEachRecordNamed(wanted, [&](const v1::Record& record, uint64_t stack) -> absl::Status {
    // A row of construct.json only: there is nothing to show.
    if (record.flags() & v1::FRAGMENT_CONSTRUCT_ONLY) return absl::OkStatus();
    if (!request.with_stack() || stack == 0) return send(record) ? absl::OkStatus() : PeerGone();
    auto found = stacks.find(stack);
    if (found == stacks.end()) {
      auto frames = (*reader)->Stack(stack);
      if (!frames.ok()) return frames.status();
      found = stacks.emplace(stack, *std::move(frames)).first;
    }
    v1::Record with_stack = record;
    for (const v1::Frame& frame : found->second) *with_stack.add_stack() = frame;
    return send(with_stack) ? absl::OkStatus() : PeerGone();
  });
}

}  // namespace msprobe::server
