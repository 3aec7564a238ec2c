#include "server/importer/dump_importer.h"

#include <algorithm>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "server/format/cat.h"
#include "server/importer/batch_builder.h"
#include "server/importer/dump_layout.h"
#include "server/importer/graph_dump_files.h"
#include "server/importer/step_importer.h"

namespace msprobe::server {
namespace {

constexpr size_t kChunkBytes = 512 << 10;

std::string RandomSession() {
  std::random_device random;
  std::string session;
  for (int i = 0; i < 16; ++i) session += static_cast<char>(random() & 0xFF);
  return session;
}

// Sends the payloads that a batch's verdict wants.
class PayloadSender {
 public:
  PayloadSender(FileSource& files, Session& session) : files_(files), session_(session) {}

  PayloadFiles& payloads() { return payloads_; }
  uint64_t seen() const { return sent_.size(); }

  absl::Status Send(const v1::PayloadVerdict& verdict) {
    for (const std::string& hash : verdict.stored()) {
      if (payloads_.contains(hash)) sent_.insert(hash);
    }
    for (const std::string& hash : verdict.wanted()) {
      auto it = payloads_.find(hash);
      if (it == payloads_.end()) {
        return absl::InternalError(Cat("a payload was wanted that was not announced: ", absl::BytesToHexString(hash)));
      }
      if (absl::Status status = SendOne(hash, it->second); !status.ok()) return status;
      sent_.insert(hash);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status SendOne(const std::string& hash, const PayloadFile& payload) {
    v1::PayloadChunk chunk;
    chunk.set_hash(hash);
    uint64_t offset = 0;
    std::string pending;
    auto send = [&](size_t count) {
      chunk.set_offset(offset);
      chunk.set_content(pending.substr(0, count));
      pending.erase(0, count);
      offset += count;
      chunk.set_last(offset == payload.size);
      return session_.AddPayload(chunk).status();
    };
    absl::Status status = ReadTensorContent(files_, payload, [&](std::string_view content) {
      pending.append(content);
      while (pending.size() >= kChunkBytes) {
        if (absl::Status sent = send(kChunkBytes); !sent.ok()) return sent;
      }
      return absl::OkStatus();
    });
    if (status.ok() && (!pending.empty() || payload.size == 0)) status = send(pending.size());
    if (!status.ok()) return absl::Status(status.code(), Cat(payload.path, ": ", StdView(status.message())));
    return status;
  }

  FileSource& files_;
  Session& session_;
  PayloadFiles payloads_;
  std::set<std::string> sent_;
};

absl::Status ImportRank(FileSource& files, const DumpImportOptions& options, const v1::Rank& rank,
                        const std::map<uint32_t, StepFiles>& steps,
                        const std::map<uint32_t, v1::CaptureSettings>& settings, SessionOpener& opener,
                        v1::ImportResponse& response, std::vector<std::string>& warnings) {
  v1::Hello hello;
  hello.set_protocol(1);
  hello.set_session(RandomSession());
  hello.set_run(options.run);
  *hello.mutable_rank() = rank;
  hello.set_program("import");
  hello.set_started_unix_us(absl::ToUnixMicros(absl::Now()));
  *hello.mutable_settings() = settings.begin()->second;
  absl::StatusOr<std::shared_ptr<Session>> session = opener.OpenSession(hello);
  if (!session.ok()) return session.status();

  PayloadSender sender(files, **session);
  BatchBuilder builder(hello.session(), (*session)->welcome().max_batch_bytes(),
                       [&](const v1::Batch& batch) -> absl::Status {
                         absl::StatusOr<v1::PayloadVerdict> verdict = (*session)->Apply(batch);
                         return verdict.ok() ? sender.Send(*verdict) : verdict.status();
                       });
  bool last_complete = true;
  std::string settings_now = hello.settings().SerializeAsString();
  for (const auto& [step, step_files] : steps) {
    const v1::CaptureSettings& step_settings = settings.at(step);
    if (std::string bytes = step_settings.SerializeAsString(); bytes != settings_now) {
      settings_now = std::move(bytes);
      v1::Marker changed;
      *changed.mutable_settings_changed()->mutable_settings() = step_settings;
      if (absl::Status status = builder.AddMarker(std::move(changed)); !status.ok()) return status;
    }
    absl::StatusOr<ImportedStep> imported = ImportStep(files, step, step_files, &builder, sender.payloads(), warnings);
    if (!imported.ok()) return imported.status();
    response.set_records(response.records() + imported->records);
    last_complete = !step_files.incomplete;
    if (last_complete) {
      v1::Marker end;
      end.mutable_step_end()->set_step(step);
      if (absl::Status status = builder.AddMarker(std::move(end)); !status.ok()) return status;
    }
    if (absl::Status status = builder.Flush(); !status.ok()) return status;
  }
  v1::Marker end;
  end.mutable_session_end()->set_clean(last_complete);
  if (absl::Status status = builder.AddMarker(std::move(end)); !status.ok()) return status;
  if (absl::Status status = builder.Flush(); !status.ok()) return status;
  response.set_payloads(response.payloads() + sender.seen());
  return (*session)->AwaitDurable(options.durable_timeout);
}

absl::StatusOr<v1::ImportResponse> ImportFiles(FileSource& files, const DumpImportOptions& options,
                                               SessionOpener& opener) {
  std::vector<std::string> warnings;
  absl::StatusOr<DumpLayout> layout = FindSteps(files.paths(), options.default_step, options.default_rank, warnings);
  if (!layout.ok()) return layout.status();

  // Everything is read and checked before the first session begins: a run is imported whole or not at all.
  std::map<std::pair<int, uint32_t>, std::map<uint32_t, v1::CaptureSettings>> settings;
  std::set<uint32_t> step_numbers;
  PayloadFiles unused;
  for (const auto& [rank, steps] : *layout) {
    for (const auto& [step, step_files] : steps) {
      absl::StatusOr<ImportedStep> checked = ImportStep(files, step, step_files, nullptr, unused, warnings);
      if (!checked.ok()) return checked.status();
      settings[rank][step] = checked->settings;
      step_numbers.insert(step);
    }
  }
  v1::ImportResponse response;
  for (const auto& [rank_key, steps] : *layout) {
    v1::Rank rank;
    rank.set_kind(static_cast<v1::Rank::Kind>(rank_key.first));
    rank.set_number(rank_key.second);
    absl::Status status = ImportRank(files, options, rank, steps, settings[rank_key], opener, response, warnings);
    if (!status.ok()) return status;
  }
  response.set_steps(static_cast<uint32_t>(step_numbers.size()));
  for (std::string& warning : warnings) response.add_warnings(std::move(warning));
  return response;
}

}  // namespace

absl::StatusOr<v1::ImportResponse> ImportDump(FileSource& files, const DumpImportOptions& options,
                                              SessionOpener& opener) {
  if (options.run.empty()) return absl::InvalidArgumentError("an import needs the name of a run");
  if (!GraphDumpFiles::Knows(files.paths())) return ImportFiles(files, options, opener);
  const absl::StatusOr<std::unique_ptr<GraphDumpFiles>> graphs = GraphDumpFiles::Read(files);
  return graphs.ok() ? ImportFiles(**graphs, options, opener) : graphs.status();
}

}  // namespace msprobe::server
