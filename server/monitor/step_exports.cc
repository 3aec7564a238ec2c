#include "server/monitor/step_exports.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "absl/strings/str_join.h"
#include "server/exporter/file_sink.h"
#include "server/exporter/gradient_files.h"
#include "server/exporter/step_exporter.h"
#include "server/format/cat.h"
#include "server/ingest/session/process_check.h"
#include "server/metrics/log.h"
#include "server/store/session_order.h"
#include "server/stored/gradient_signs.h"

namespace msprobe::server {
namespace {

// Passes on the files below `directory`, and keeps the one beside it, a table, until all of them are in place.
class TableApart : public FileSink {
 public:
  TableApart(std::string directory, FileSink& sink) : directory_(std::move(directory)), below_(directory_, sink) {}

  absl::Status Begin(std::string_view path) override {
    in_table_ = !path.starts_with(Cat(directory_, "/"));
    if (in_table_) return absl::OkStatus();
    has_files_ = true;
    return below_.Begin(path);
  }
  absl::Status Write(std::string_view content) override {
    if (!in_table_) return below_.Write(content);
    table_ += content;
    return absl::OkStatus();
  }
  absl::Status End() override { return in_table_ ? absl::OkStatus() : below_.End(); }

  bool has_files() const { return has_files_; }
  // The file appears whole.
  absl::Status WriteTable(const std::string& path, mode_t umask) const {
    const std::string temporary = path + ".tmp";
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    file << table_;
    file.close();
    if (file.fail()) return absl::ResourceExhaustedError(Cat("cannot write ", temporary, ": ", strerror(errno)));
    chmod(temporary.c_str(), 0666 & ~umask);
    std::filesystem::rename(temporary, path, error);
    if (error) return absl::UnavailableError(Cat("cannot write ", path, ": ", error.message()));
    return absl::OkStatus();
  }

 private:
  const std::string directory_;
  FilesBelow below_;
  std::string table_;
  bool in_table_ = false;
  bool has_files_ = false;
};

}  // namespace

std::unique_ptr<StepMonitor> MakeStepExports(const MonitorParts& parts) {
  if (parts.files.dump_path.empty()) return nullptr;
  return std::make_unique<StepExports>(parts.store, parts.metrics, parts.room, parts.files);
}

absl::Status StepExports::Begin(Sessions* sessions) {
  sessions_ = sessions;
  auto gradients = ExportFormats::Standard().Find(kGradProbe);
  if (!gradients.ok()) return gradients.status();
  gradients_ = *std::move(gradients);

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
  workers_.Add(session, [this, session, step] { TellExported(session, step); });
}

void StepExports::OnRankKnown(const std::string& session, const v1::Rank& from, const v1::Rank& to) {
  workers_.Add(session, [this, session, from, to] { MoveDirectories(session, from, to); });
}

void StepExports::OnSessionClosed(const storage::SessionRow& session) {
  workers_.Add(session.session(), [this, id = session.session()] {
    // More steps of it are to be written, as links to files of those before; a step may end behind its session, when
    // its last tensor comes. Behind the last of them this is called again.
    if (auto live = sessions_->FindOrLoad(id); workers_.HasWaiting(id) || (live.ok() && (*live)->unfinished())) return;
    absl::MutexLock lock(&mu_);
    former_.erase(id);
  });
}

StepExports::Former* StepExports::FormerOf(const std::string& session, const StepPart& part) {
  absl::MutexLock lock(&mu_);
  return &former_[session][part.directory.substr(0, part.directory.find("step"))];
}

void StepExports::Queue(const std::string& session, uint32_t step) {
  room_->NoteWaiting();
  workers_.Add(session, [this, session, step] { room_->NoteExported(ExportAndTell(session, step)); });
}

std::vector<std::string> StepExports::ExportAndTell(const std::string& session, uint32_t step) {
  auto live = sessions_->FindOrLoad(session);
  if (!live.ok()) {
    LogError("step {} is not exported: {}", step, live.status().ToString());
    return {};
  }
  const storage::SessionRow row = (*live)->row();
  if (IsImport(row)) return {};
  v1::StepExported exported;
  exported.set_step(step);
  // Whoever awaits a step may have had it written before its end is told here.
  const std::optional<storage::StepRow> stored = StoredStep(row, step);
  if (stored.has_value() && stored->exported()) {
    exported.set_path(TellPath(row.hello().settings(), step, row.hello().rank()));
    exported.set_incomplete(stored->state() == v1::StepSummary::INCOMPLETE);
    if (absl::Status status = (*live)->NoteExported(exported, nullptr); !status.ok()) LogError("{}", status.ToString());
    return {};
  }
  bool finished = false, incomplete = false;
  auto paths = WriteFiles(row, step, finished, incomplete);
  metrics_->Add(Metric::kExports, 1, {paths.ok() ? "ok" : "error"});
  if (paths.ok()) {
    exported.set_incomplete(incomplete);
    if (!paths->empty()) {
      exported.set_path(TellPath(row.hello().settings(), step, row.hello().rank()));
      LogInfo("step {} of run {} is at {}{}", step, row.hello().run(), absl::StrJoin(*paths, " and "),
              incomplete ? " (incomplete)" : "");
    }
  } else {
    exported.set_error(std::string(paths.status().message()));
    LogError("step {} of run {} is not exported: {}", step, row.hello().run(), paths.status().ToString());
  }
  const bool is_whole = finished && stored.has_value();
  absl::Status status = (*live)->NoteExported(exported, is_whole ? &*stored : nullptr);
  if (!status.ok()) LogError("{}", status.ToString());
  return paths.ok() ? *std::move(paths) : std::vector<std::string>();
}

void StepExports::TellExported(const std::string& session, uint32_t step) {
  auto live = sessions_->FindOrLoad(session);
  if (!live.ok()) return;
  const auto stored = StoredStep((*live)->row(), step);
  if (!stored.has_value() || stored->state() == v1::StepSummary::OPEN) return;
  room_->NoteWaiting();
  room_->NoteExported(ExportAndTell(session, step));
}

std::optional<storage::StepRow> StepExports::StoredStep(const storage::SessionRow& session, uint32_t step) const {
  const StepKey key{session.run(), RankCode(session.hello().rank()), step, session.epoch()};
  auto found = store_->database().Find<storage::StepRow>(key.Encode());
  return found.ok() ? *std::move(found) : std::nullopt;
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

absl::StatusOr<std::vector<std::string>> StepExports::WriteFiles(const storage::SessionRow& session, uint32_t step,
                                                                 bool& finished, bool& incomplete) {
  const v1::Rank& rank = session.hello().rank();
  auto replaced = IsReplaced(session, step);
  if (!replaced.ok()) return replaced.status();
  if (*replaced) {
    finished = true;
    return std::vector<std::string>{Cat(files_.dump_path, "/", StepDirectory(step, rank))};
  }
  auto reader = store_->steps().Open(session.hello().run(), step, rank, session.epoch());
  if (!reader.ok()) return reader.status();
  finished = (*reader)->state() != v1::StepSummary::OPEN;
  incomplete = (*reader)->state() == v1::StepSummary::INCOMPLETE;
  if ((*reader)->settings().task() == kGradProbe) {
    auto table = WriteGradients(**reader);
    if (!table.ok()) return table.status();
    return std::vector<std::string>{*std::move(table)};
  }
  auto has_files = HasFiles(**reader);
  if (!has_files.ok()) return has_files.status();
  if (!*has_files) return std::vector<std::string>();
  std::vector<std::string> written;
  for (const StepPart& part : PartsOf(**reader)) {
    Former* const former = FormerOf(session.session(), part);
    StepExportOptions options;
    options.directory = Cat(files_.dump_path, "/", part.directory);
    options.stacks = &former->stacks;
    auto sink = DirectorySink::Open(options.directory, files_.umask, &former->files);
    if (!sink.ok()) return sink.status();
    auto summary = ExportStep(*part.records, options, *sink);
    if (!summary.ok()) return summary.status();
    for (const std::string& warning : summary->warnings) LogWarning("{}: {}", options.directory, warning);
    if (absl::Status status = sink->Commit(); !status.ok()) return status;
    written.push_back(std::move(options.directory));
  }
  return written;
}

std::string StepExports::TellPath(const v1::CaptureSettings& settings, uint32_t step, const v1::Rank& rank) const {
  const bool is_table = settings.task() == kGradProbe;
  return Cat(files_.dump_path, "/", is_table ? GradientSummaryPath(step, rank) : ToldDirectory(settings, step));
}

absl::StatusOr<std::string> StepExports::WriteGradients(RecordSource& step) {
  const std::string signs = Cat(GradientDirectory(step.rank()), "/step", step.step());
  const std::string table = Cat(files_.dump_path, "/", GradientSummaryPath(step.step(), step.rank()));
  auto directory = DirectorySink::Open(Cat(files_.dump_path, "/", signs), files_.umask);
  if (!directory.ok()) return directory.status();
  TableApart sink(signs, *directory);
  ExportOptions options;
  options.on_warning = [&](const std::string& warning) { LogWarning("{}: {}", table, warning); };
  auto format = gradients_(options, sink);
  if (!format.ok()) return format.status();
  ExportedStep exported;
  exported.records = &step;
  if (absl::Status status = (*format)->Add(exported, {}); !status.ok()) return status;
  if (absl::Status status = (*format)->Finish(); !status.ok()) return status;
  if (sink.has_files()) {
    if (absl::Status status = directory->Commit(); !status.ok()) return status;
  }
  if (absl::Status status = sink.WriteTable(table, files_.umask); !status.ok()) return status;
  return table;
}

void StepExports::MoveDirectories(const std::string& session, const v1::Rank& from, const v1::Rank& to) {
  namespace fs = std::filesystem;
  auto live = sessions_->FindOrLoad(session);
  if (!live.ok()) return;
  const storage::SessionRow row = (*live)->row();
  if (row.hello().settings().task() == kGradProbe) return;  // files were written as of rank 0, or the rank was known
  auto steps = store_->steps().Of(row.run());
  if (!steps.ok()) return;
  std::set<uint32_t> moved;
  for (const auto& [key, step] : *steps) {
    if (key.epoch == row.epoch()) moved.insert(key.step);
  }
  for (uint32_t step : moved) {
    for (const std::string_view folder : kPartFolders) {
      const fs::path old_path = Cat(files_.dump_path, "/", folder, StepDirectory(step, from));
      const fs::path new_path = Cat(files_.dump_path, "/", folder, StepDirectory(step, to));
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
}

}  // namespace msprobe::server
