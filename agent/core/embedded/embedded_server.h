#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace msprobe::core {

// The server of a dump_path: where its data lies, where it says how to reach it, and how to start it.
//
// Several ranks may start one at once: the server takes a lock on its data directory and a loser leaves. That an
// address is advertised does not mean that anybody answers there; only a handshake tells. Threads: one.
class EmbeddedServer {
 public:
  // Makes the directories. `binary` may be empty: see FindBinary. `quota_bytes`: SessionOptions.dump_quota_bytes.
  // FailedPrecondition: a directory cannot be made.
  static absl::StatusOr<EmbeddedServer> Prepare(const std::string& dump_path, const std::string& binary,
                                                uint64_t quota_bytes = 0);

  // As advertised; nothing: there is no readable advertisement.
  std::optional<std::string> AdvertisedAddress() const;

  // Starts a server that outlives this process and is not its child. NotFound: no binary; the message says where it was
  // looked for. OK does not mean that it runs: it has been executed.
  absl::Status Start() const;

  const std::string& data_directory() const { return data_directory_; }
  const std::string& socket_path() const { return socket_path_; }

  // `binary` itself, or msprobe-server beside the program (as it was called, and as it is resolved), in
  // VIRTUAL_ENV/bin, or in PATH.
  static absl::StatusOr<std::string> FindBinary(const std::string& binary);

 private:
  EmbeddedServer() = default;

  std::string dump_path_, binary_, data_directory_, socket_path_;
  uint64_t quota_bytes_ = 0;
};

// `dump_path`/.msprobe/`boot_id`, or a directory under `temporary` where dump_path is on a network file system.
std::string DataDirectory(const std::string& dump_path, const std::string& boot_id, const std::string& temporary,
                          bool on_network);

bool IsOnNetworkFileSystem(const std::string& path);

// A directory of this user alone (0700) for sockets: XDG_RUNTIME_DIR/msprobe or /tmp/msprobe-UID.
absl::StatusOr<std::string> RuntimeDirectory();

}  // namespace msprobe::core
