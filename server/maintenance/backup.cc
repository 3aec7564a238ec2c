#include "server/maintenance/backup.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <vector>

#include "server/format/cat.h"

namespace msprobe::server {
namespace {

namespace fs = std::filesystem;
constexpr size_t kChunkBytes = size_t{1} << 20;

absl::Status SendFile(const fs::path& root, const fs::path& file, v1::BackupChunk first,
                      const std::function<bool(const v1::BackupChunk&)>& send) {
  std::ifstream in(file, std::ios::binary);
  first.set_path(fs::relative(file, root).generic_string());
  v1::BackupChunk chunk = std::move(first);
  std::string content(kChunkBytes, '\0');
  while (in) {
    in.read(content.data(), static_cast<std::streamsize>(content.size()));
    if (in.bad()) break;
    chunk.set_content(content.data(), static_cast<size_t>(in.gcount()));
    chunk.set_last(in.eof());
    if (!send(chunk)) return absl::CancelledError("the client is gone");
    chunk.Clear();
  }
  if (in.eof()) return absl::OkStatus();
  return absl::UnavailableError(Cat("cannot read ", file.string(), " of the checkpoint"));
}

}  // namespace

absl::Status SendBackup(const Store& store, const std::string& scratch,
                        const std::function<bool(const v1::BackupChunk&)>& send) {
  static std::atomic<uint64_t> number = 0;
  const fs::path root = fs::path(scratch) / Cat("backup-", ++number);
  struct Removed {
    const fs::path& path;
    ~Removed() {
      std::error_code error;
      fs::remove_all(path, error);
    }
  } removed{root};
  if (absl::Status status = store.maintenance().Checkpoint(root.string()); !status.ok()) return status;
  std::vector<fs::path> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root, error)) {
    if (entry.is_regular_file(error)) files.push_back(entry.path());
  }
  if (error) return absl::UnavailableError(Cat("cannot list ", root.string(), ": ", error.message()));
  std::sort(files.begin(), files.end());
  v1::BackupChunk first;
  first.set_files_total(static_cast<uint32_t>(files.size()));
  first.set_server_id(store.catalogue().server_id());
  first.set_storage_format(kStorageFormat);
  for (const fs::path& file : files) {
    if (absl::Status status = SendFile(root, file, first, send); !status.ok()) return status;
    first.Clear();
  }
  return absl::OkStatus();
}

void RemoveLeftBackups(const std::string& scratch) {
  std::error_code error;
  fs::remove_all(scratch, error);
}

}  // namespace msprobe::server
