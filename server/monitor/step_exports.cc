#include "server/monitor/step_exports.h"

#include <filesystem>
#include <set>
#include <system_error>

#include "server/exporter/file_sink.h"
#include "server/exporter/step_exporter.h"
#include "server/format/cat.h"
#include "server/ingest/session/process_check.h"
#include "server/metrics/log.h"
#include "server/store/session_order.h"

namespace msprobe::server {

std::unique_ptr<StepMonitor> MakeStepExports(const MonitorParts& parts) {
  if (parts.files.dump_path.empty()) return nullptr;
  return std::make_unique<StepExports>(parts.store, parts.metrics, parts.room, parts.files);
}

absl::Status StepExports::Begin(Sessions* sessions) {
  sessions_ = sessions;
  auto format = ExportFormats::Standard().Find("dump");
  if (!format.ok()) return format.status();
  format_ = *std::move(format);

  auto runs = store_->catalogue().Runs();
  if (!runs.ok()) return runs.status();
  for (const storage::RunRow& run : *runs) {
    auto steps = store_->steps().Of(run.number());
    if (!steps.ok()) return steps.status();
    for (const auto& [key, row] : *steps) {
      if (row.state() == v1::StepSummary::OPEN || row.exported()) continue;
      auto session = store_->catalogue().SessionOfEpoch(key.run, key.epoch);
      if (!session.ok()) return session.status();
      if (!IsImport(*session)) Queue(session->session(), key.step);
    }
  }
  return absl::OkStatus();
}

void StepExports::OnStepFinished(const std::string& session, uint32_t step, v1::StepSummary::State) {
  Queue(session, step);
}

void StepExports::OnExportRequested(const std::string& session, uint32_t step) { Queue(session, step); }

void StepExports::OnExportAwaited(const std::string& session, uint32_t step) {
  workers_.Add(session, [this, session, step] { TellIfExported(session, step); });
}

void StepExports::OnRankKnown(const std::string& session, const v1::Rank& from, const v1::Rank& to) {
  workers_.Add(session, [this, session, from, to] { MoveDirectories(session, from, to); });
}

void StepExports::Queue(const std::string& session, uint32_t step) {
  room_->NoteWaiting();
  workers_.Add(session, [this, session, step] { room_->NoteExported(ExportAndTell(session, step)); });
}

std::string StepExports::ExportAndTell(const std::string& session, uint32_t step) {
  auto live = sessions_->FindOrLoad(session);
  if (!live.ok()) {
    LogError("step {} is not exported: {}", step, live.status().ToString());
    return "";
  }
  const storage::SessionRow row = (*live)->row();
  if (IsImport(row)) return "";
  v1::StepExported exported;
  exported.set_step(step);
  bool finished = false, incomplete = false;
  auto path = WriteFiles(row, step, finished, incomplete);
  metrics_->Add(Metric::kExports, 1, {path.ok() ? "ok" : "error"});
  if (path.ok()) {
    exported.set_path(Cat(files_.dump_path, "/step", step));
    exported.set_incomplete(incomplete);
    LogInfo("step {} of run {} is at {}{}", step, row.hello().run(), *path, incomplete ? " (incomplete)" : "");
  } else {
    exported.set_error(std::string(path.status().message()));
    LogError("step {} of run {} is not exported: {}", step, row.hello().run(), path.status().ToString());
  }
  if (absl::Status status = (*live)->NoteExported(exported, finished); !status.ok()) LogError("{}", status.ToString());
  return path.ok() ? *path : "";
}

void StepExports::TellIfExported(const std::string& session, uint32_t step) {
  auto live = sessions_->FindOrLoad(session);
  if (!live.ok()) return;
  const storage::SessionRow row = (*live)->row();
  auto found = store_->database().Find<storage::StepRow>(
      StepKey{row.run(), RankCode(row.hello().rank()), step, row.epoch()}.Encode());
  if (!found.ok() || !found->has_value() || !(*found)->exported()) return;
  v1::StepExported exported;
  exported.set_step(step);
  exported.set_path(Cat(files_.dump_path, "/step", step));
  exported.set_incomplete((*found)->state() == v1::StepSummary::INCOMPLETE);
  if (absl::Status status = (*live)->NoteExported(exported, false); !status.ok()) LogError("{}", status.ToString());
}

absl::StatusOr<bool> StepExports::IsReplaced(const storage::SessionRow& session, uint32_t step) const {
  auto runs = store_->catalogue().Runs();
  if (!runs.ok()) return runs.status();
  for (const storage::RunRow& run : *runs) {
    auto steps = store_->steps().Of(run.number(), session.hello().rank(), step);
    if (!steps.ok()) return steps.status();
    for (const auto& [key, row] : *steps) {
      if (!row.exported() || (key.run == session.run() && key.epoch == session.epoch())) continue;
      auto other = store_->catalogue().SessionOfEpoch(key.run, key.epoch);
      if (!other.ok()) return other.status();
      if (!IsImport(*other) && BeganLater(*other, session)) return true;
    }
  }
  return false;
}

absl::StatusOr<std::string> StepExports::WriteFiles(const storage::SessionRow& session, uint32_t step, bool& finished,
                                                    bool& incomplete) {
  const v1::Rank& rank = session.hello().rank();
  const std::string files = StepDirectory(step, rank);
  const std::string directory = Cat(files_.dump_path, "/", files);
  auto replaced = IsReplaced(session, step);
  if (!replaced.ok()) return replaced.status();
  if (*replaced) {
    finished = true;
    return directory;
  }
  auto reader = store_->steps().Open(session.hello().run(), step, rank, session.epoch());
  if (!reader.ok()) return reader.status();
  finished = (*reader)->state() != v1::StepSummary::OPEN;
  incomplete = (*reader)->state() == v1::StepSummary::INCOMPLETE;
  auto sink = DirectorySink::Open(directory, files_.umask);
  if (!sink.ok()) return sink.status();
  ExportOptions options;
  options.output_directory = files_.dump_path;
  options.on_warning = [&](const std::string& warning) { LogWarning("{}: {}", directory, warning); };
  FilesBelow below(files, *sink);
  auto format = format_(options, below);
  if (!format.ok()) return format.status();
  ExportedStep exported;
  exported.records = reader->get();
  if (absl::Status status = (*format)->Add(exported, {}); !status.ok()) return status;
  if (absl::Status status = (*format)->Finish(); !status.ok()) return status;
  if (absl::Status status = sink->Commit(); !status.ok()) return status;
  return directory;
}

void StepExports::MoveDirectories(const std::string& session, const v1::Rank& from, const v1::Rank& to) {
  namespace fs = std::filesystem;
  auto live = sessions_->FindOrLoad(session);
  if (!live.ok()) return;
  const storage::SessionRow row = (*live)->row();
  auto steps = store_->steps().Of(row.run());
  if (!steps.ok()) return;
  std::set<uint32_t> moved;
  for (const auto& [key, step] : *steps) {
    if (key.epoch == row.epoch()) moved.insert(key.step);
  }
  for (uint32_t step : moved) {
    const fs::path old_path = Cat(files_.dump_path, "/", StepDirectory(step, from));
    const fs::path new_path = Cat(files_.dump_path, "/", StepDirectory(step, to));
    std::error_code error;
    if (!fs::exists(old_path, error)) continue;
    if (fs::exists(old_path / "dump_tensor_data", error)) {
      // dump.json contains the name of its directory, so it is written again rather than moved.
      bool finished = false, incomplete = false;
      auto written = WriteFiles(row, step, finished, incomplete);
      if (!written.ok()) {
        LogError("{} does not become {}: {}", old_path.string(), new_path.string(), written.status().ToString());
        continue;
      }
      fs::remove_all(old_path, error);
    } else {
      fs::remove_all(new_path, error);
      fs::rename(old_path, new_path, error);
    }
    if (error) LogError("{} does not become {}: {}", old_path.string(), new_path.string(), error.message());
  }
}

}  // namespace msprobe::server
