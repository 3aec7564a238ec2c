// A message of an agent: definitions, blocks and markers as the server checks them, and records decoded from what
// passed.

#include <map>
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "msprobe/v1/ingest.pb.h"
#include "server/format/storage/record_assembler.h"
#include "server/format/storage/structure_summary.h"
#include "tests/fuzz/fuzz_target.h"

namespace msprobe::server {
namespace {

void Decode(const v1::Batch& batch) {
  std::map<uint64_t, SharedStructure> structures;
  for (const v1::Definition& definition : batch.definitions()) {
    const auto structure = DecodeStructure(definition.structure());
    if (structure.ok()) structures[definition.id()] = *structure;
    v1::Stack().ParseFromString(definition.stack());
  }
  const auto source = [&](uint64_t id) -> absl::StatusOr<SharedStructure> {
    const auto found = structures.find(id);
    if (found == structures.end()) return absl::NotFoundError("no such structure");
    return found->second;
  };
  for (const v1::Item& item : batch.items()) {
    if (!item.has_block()) continue;
    RecordAssembler assembler(item.block().step(), v1::Rank(), source);
    if (!assembler.Add(std::make_shared<v1::Block>(item.block())).ok()) continue;
    assembler
        .ForEach([](const v1::Record& record, uint64_t) {
          record.ByteSizeLong();
          return absl::OkStatus();
        })
        .IgnoreError();
  }
}

}  // namespace
}  // namespace msprobe::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  [[maybe_unused]] static auto* const loud = google::protobuf::SetLogHandler(nullptr);
  msprobe::v1::AgentMessage message;
  if (message.ParseFromArray(data, static_cast<int>(size)) && message.has_batch()) {
    msprobe::server::Decode(message.batch());
  }
  return 0;
}
