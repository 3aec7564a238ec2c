#include "agent/core/embedded/embedded_server.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "agent/core/content_hash.h"
#include "agent/core/embedded/detached_process.h"
#include "agent/core/private_directory.h"
#include "agent/core/process_identity.h"
#include "agent/core/str_cat.h"
#include "rapidjson/document.h"

namespace msprobe::core {
namespace {

constexpr char kBinaryName[] = "msprobe-server";

// The first 64 KiB of a regular file; empty where it cannot be read or is another kind of file. Others may have put it
// there: nothing is waited for.
std::string ReadFile(const std::string& path) {
  constexpr size_t kMost = 65536;
  std::string content;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return content;
  struct stat status {};
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
    char piece[4096];
    ssize_t size = 0;
    while (content.size() < kMost && (size = read(file, piece, sizeof piece)) > 0) {
      content.append(piece, static_cast<size_t>(size));
    }
    if (size < 0) content.clear();
  }
  close(file);
  return content;
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return absl::FailedPreconditionError(Cat("cannot make ", path, ": ", error.message()));
  return absl::OkStatus();
}

std::string HashOf(const std::string& text) { return Cat(absl::Hex(DefinitionHash(text), absl::kZeroPad16)); }

absl::StatusOr<std::string> PrivateDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::FailedPreconditionError(Cat("cannot make ", path, ": ", std::strerror(errno)));
  }
  struct stat status {};
  // Another user's directory with that name, or a link to one, would give that user our socket.
  if (lstat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
      (status.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(Cat(path, " is not a directory of this user alone (mode 0700)"));
  }
  return path;
}

// Distinguishes a directory from its copies, and from an earlier one with the same path, whose server may still be
// listening. It stays the same where the directory is moved.
std::string DirectoryIdentity(const std::string& path) {
  struct statx status {};
  if (statx(AT_FDCWD, path.c_str(), 0, STATX_INO | STATX_BTIME, &status) != 0) return path;
  return Cat(status.stx_dev_major, ":", status.stx_dev_minor, " ", status.stx_ino, " ", status.stx_btime.tv_sec, ".",
             status.stx_btime.tv_nsec);
}

bool IsExecutable(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string DataDirectory(const std::string& dump_path, const std::string& boot_id, const std::string& temporary,
                          bool on_network) {
  if (!on_network) return Cat(dump_path, "/.msprobe/", boot_id);
  return Cat(temporary, "/msprobe-", geteuid(), "/", HashOf(dump_path), "/", boot_id);
}

bool IsOnNetworkFileSystem(const std::string& path) {
  struct statfs status {};
  if (statfs(path.c_str(), &status) != 0) return false;
  switch (static_cast<uint32_t>(status.f_type)) {
    case 0x6969:      // NFS
    case 0x517B:      // SMB
    case 0xFF534D42:  // CIFS
    case 0xFE534D42:  // SMB2
    case 0x65735546:  // FUSE
    case 0x0BD00BD0:  // Lustre
    case 0x00C36400:  // Ceph
    case 0x47504653:  // GPFS
    case 0x19830326:  // BeeGFS
    case 0x01021997:  // 9P
    case 0x5346414F:  // AFS
      return true;
    default:
      return false;
  }
}

absl::StatusOr<std::string> RuntimeDirectory() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  // "/msprobe/" + 16 digits + ".sock" must fit the 107 bytes of a socket path.
  if (runtime != nullptr && runtime[0] == '/' && std::strlen(runtime) <= 70 && access(runtime, W_OK) == 0) {
    absl::StatusOr<std::string> directory = PrivateDirectory(Cat(runtime, "/msprobe"));
    if (directory.ok()) return directory;
  }
  return PrivateDirectory(Cat("/tmp/msprobe-", geteuid()));
}

absl::StatusOr<std::string> EmbeddedServer::FindBinary(const std::string& binary) {
  if (!binary.empty()) {
    if (IsExecutable(binary)) return binary;
    return absl::NotFoundError(Cat(binary, " is not an executable file"));
  }
  std::vector<std::string> directories;
  const std::string command_line = ReadFile("/proc/self/cmdline");
  const std::string program = command_line.substr(0, command_line.find('\0'));
  if (absl::StrContains(program, '/')) directories.push_back(std::filesystem::path(program).parent_path());
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) directories.push_back(resolved.parent_path());
  if (const char* environment = std::getenv("VIRTUAL_ENV")) directories.push_back(Cat(environment, "/bin"));
  if (const char* path = std::getenv("PATH")) {
    for (absl::string_view directory : absl::StrSplit(path, ':', absl::SkipEmpty())) {
      directories.emplace_back(directory);
    }
  }
  for (const std::string& directory : directories) {
    const std::string candidate = Cat(directory, "/", kBinaryName);
    if (IsExecutable(candidate)) return candidate;
  }
  return absl::NotFoundError(Cat(kBinaryName, " was not found in ", absl::StrJoin(directories, ", ")));
}

absl::StatusOr<EmbeddedServer> EmbeddedServer::Prepare(const std::string& dump_path, const std::string& binary,
                                                       uint64_t quota_bytes) {
  EmbeddedServer server;
  server.dump_path_ = dump_path;
  server.binary_ = binary;
  server.quota_bytes_ = quota_bytes;
  if (absl::Status status = MakeDirectories(dump_path); !status.ok()) return status;
  const bool on_network = IsOnNetworkFileSystem(dump_path);
  server.data_directory_ = DataDirectory(dump_path, BootId(), TemporaryDirectory(), on_network);
  if (on_network) {
    absl::StatusOr<std::string> parent = PrivateDirectory(Cat(TemporaryDirectory(), "/msprobe-", geteuid()));
    if (!parent.ok()) return parent.status();
  }
  // The data directory is for this user alone; the program's umask says who may read exports.
  const std::filesystem::path data(server.data_directory_);
  for (const std::filesystem::path& directory : {data.parent_path(), data}) {
    if (absl::Status status = MakePrivateDirectory(directory); !status.ok()) return status;
  }
  absl::StatusOr<std::string> runtime = RuntimeDirectory();
  if (!runtime.ok()) return runtime.status();
  server.socket_path_ = Cat(*runtime, "/", HashOf(DirectoryIdentity(server.data_directory_)), ".sock");
  return server;
}

std::optional<std::string> EmbeddedServer::AdvertisedAddress() const {
  rapidjson::Document parsed;
  const rapidjson::Document& document = parsed;
  parsed.Parse<rapidjson::kParseIterativeFlag>(ReadFile(data_directory_ + "/server.json").c_str());
  if (document.HasParseError() || !document.IsObject()) return std::nullopt;
  const auto address = document.FindMember("address");
  if (address == document.MemberEnd() || !address->value.IsString()) return std::nullopt;
  // A copy of the directory names the server of the original. The socket may lie in the runtime directory of another
  // process, but its name is made from the identity of the data directory.
  const std::filesystem::path socket(address->value.GetString());
  if (socket.filename() != std::filesystem::path(socket_path_).filename()) return std::nullopt;
  return address->value.GetString();
}

absl::Status EmbeddedServer::Start() const {
  absl::StatusOr<std::string> binary = FindBinary(binary_);
  if (!binary.ok()) return binary.status();
  std::vector<std::string> command = {*binary,
                                      "--embedded",
                                      Cat("--data_dir=", data_directory_),
                                      Cat("--dump_path=", dump_path_),
                                      Cat("--advertise=", data_directory_, "/server.json"),
                                      Cat("--listen=unix:", socket_path_)};
  if (quota_bytes_ > 0) command.push_back(Cat("--dump_quota_mib=", quota_bytes_ >> 20));
  return StartDetached(command, data_directory_ + "/server.log");
}

}  // namespace msprobe::core
