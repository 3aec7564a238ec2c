#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#include "server/format/cat.h"
#include "server/importer/dump_importer.h"
#include "server/importer/file_source.h"
#include "server/query/query_context.h"

namespace msprobe::server {
namespace {

// The files of one upload, for as long as it is read.
class UploadDirectory {
 public:
  explicit UploadDirectory(const std::string& parent) {
    std::error_code error;
    std::filesystem::create_directories(parent, error);
    std::string pattern = Cat(parent, "/upload-XXXXXX");
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~UploadDirectory() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Opens sessions in the name of a caller.
class OpenerOf : public SessionOpener {
 public:
  OpenerOf(Sessions* sessions, const Caller& caller) : sessions_(sessions), caller_(caller) {}
  absl::StatusOr<std::shared_ptr<Session>> OpenSession(const v1::Hello& hello) override {
    return sessions_->OpenStream(hello, {}, caller_);
  }

 private:
  Sessions* const sessions_;
  const Caller& caller_;
};

// What is imported stays here, and is shown as a part of the run wherever the rest of it is.
absl::Status CheckOwnerElsewhere(Peers* peers, const std::string& run, const Caller& caller) {
  if (peers == nullptr) return absl::OkStatus();
  using Found = absl::StatusOr<std::optional<PlacedRun>>;
  for (const Found& found :
       Peers::AskAll<Found>(peers->Others(peers->shards()), [&](Peer& peer) { return peer.FindRun(run); })) {
    if (!found.ok()) return found.status();
    if (!found->has_value()) continue;
    if (absl::Status status = CheckOwner(run, (*found)->owner, caller); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Spool(const Receive<v1::ImportChunk>& receive, const std::string& directory, std::string& run) {
  v1::ImportChunk chunk;
  std::ofstream file;
  std::string path;
  bool first = true;
  while (receive(chunk)) {
    if (first) run = chunk.run();
    if (first && run.empty()) return absl::InvalidArgumentError("run is empty in the first message; it names the run");
    first = false;
    if (!chunk.path().empty()) {
      if (file.is_open()) return absl::InvalidArgumentError(Cat(chunk.path(), " begins before ", path, " has ended"));
      if (!IsSafePath(chunk.path())) {
        return absl::InvalidArgumentError(
            Cat("path \"", chunk.path(), "\" must be relative, without \"..\" and empty parts"));
      }
      path = chunk.path();
      const std::filesystem::path target = std::filesystem::path(directory) / path;
      std::error_code error;
      std::filesystem::create_directories(target.parent_path(), error);
      file.open(target, std::ios::binary | std::ios::trunc);
      if (error || !file) return absl::ResourceExhaustedError(Cat("cannot write ", target.string()));
    }
    if (!file.is_open()) {
      if (chunk.content().empty() && !chunk.last()) continue;
      return absl::InvalidArgumentError("content before a path");
    }
    file.write(chunk.content().data(), static_cast<std::streamsize>(chunk.content().size()));
    if (chunk.last()) file.close();
    if (file.fail()) return absl::ResourceExhaustedError(Cat("cannot write ", path, " to ", directory));
  }
  if (first) return absl::InvalidArgumentError("an import without messages; the first one names the run");
  if (file.is_open()) return absl::InvalidArgumentError(Cat("the upload ended in the middle of ", path));
  return absl::OkStatus();
}

}  // namespace

absl::Status Import(const QueryContext& context, const Caller& caller, const Receive<v1::ImportChunk>& receive,
                    v1::ImportResponse& response) {
  UploadDirectory upload(context.spool_directory);
  if (upload.path().empty()) return absl::ResourceExhaustedError(Cat("cannot write to ", context.spool_directory));
  DumpImportOptions options;
  if (absl::Status status = Spool(receive, upload.path(), options.run); !status.ok()) return status;
  if (absl::Status status = CheckOwnerElsewhere(context.peers, options.run, caller); !status.ok()) return status;
  auto files = DirectoryFiles::Open(upload.path());
  if (!files.ok()) return files.status();
  OpenerOf opener(context.sessions, caller);
  auto imported = ImportDump(**files, options, opener);
  if (!imported.ok()) return imported.status();
  response = *std::move(imported);
  return absl::OkStatus();
}

}  // namespace msprobe::server
