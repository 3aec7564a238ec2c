#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace msprobe::core {

// The embedded server of a dump_path: where its data is, how to find its address, and how to start it.
//
// Several ranks may start one at the same time. The server takes a lock on its data directory; a server that does not
// get the lock exits. An advertised address does not mean that a server answers there; only a handshake tells.
// Threads: one.
class EmbeddedServer {
 public:
  // Makes the directories. `binary`: see FindBinary. `quota_bytes`: SessionOptions.dump_quota_bytes.
  // FailedPrecondition: a directory cannot be made.
  static absl::StatusOr<EmbeddedServer> Prepare(const std::string& dump_path, const std::string& binary,
                                                uint64_t quota_bytes = 0);

  // nullopt: there is no readable advertisement.
  std::optional<std::string> AdvertisedAddress() const;

  // Executes a server that outlives this process and is not its child. NotFound: there is no binary; the message says
  // where it was searched for. OK does not mean that the server is ready.
  absl::Status Start() const;

  const std::string& data_directory() const { return data_directory_; }
  const std::string& socket_path() const { return socket_path_; }

  // Returns `binary` if it is not empty. Else searches for msprobe-server beside the program (its path as called, and
  // with links resolved), in VIRTUAL_ENV/bin, and in PATH.
  static absl::StatusOr<std::string> FindBinary(const std::string& binary);

 private:
  EmbeddedServer() = default;

  std::string dump_path_, binary_, data_directory_, socket_path_;
  uint64_t quota_bytes_ = 0;
};

// `dump_path`/.msprobe/`boot_id`, or a directory in `temporary` if dump_path is on a network file system.
std::string DataDirectory(const std::string& dump_path, const std::string& boot_id, const std::string& temporary,
                          bool on_network);

bool IsOnNetworkFileSystem(const std::string& path);

// A directory for sockets that only this user can enter (0700): XDG_RUNTIME_DIR/msprobe or /tmp/msprobe-UID.
absl::StatusOr<std::string> RuntimeDirectory();

}  // namespace msprobe::core
