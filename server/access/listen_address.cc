#include "server/access/listen_address.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

absl::Status Bad(const std::string& value, std::string_view why) {
  return absl::InvalidArgumentError(
      Cat("--listen=", value, ": ", why, "; allowed are host:port and unix:/path, several separated by commas"));
}

}  // namespace

absl::StatusOr<std::vector<ListenAddress>> ParseListen(const std::string& value) {
  std::vector<ListenAddress> addresses;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(value, ','))) {
    ListenAddress address{part, "", true};
    if (absl::StartsWith(part, "unix:")) {
      address.unix_path = part.substr(5);
      if (!absl::StartsWith(address.unix_path, "/")) return Bad(value, "the path of a unix socket must be absolute");
      if (address.unix_path.size() >= sizeof(sockaddr_un::sun_path)) {
        return Bad(value, Cat("the path of a unix socket has ", address.unix_path.size(), " bytes, at most ",
                              sizeof(sockaddr_un::sun_path) - 1));
      }
    } else {
      const size_t colon = part.rfind(':');
      int port = -1;
      if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(part.substr(colon + 1), &port) || port < 0 ||
          port > 65535) {
        return Bad(value, Cat("\"", part, "\" is not host:port with a port of 0 to 65535"));
      }
      address.loopback = IsLoopback(part);
    }
    addresses.push_back(std::move(address));
  }
  return addresses;
}

bool IsLoopback(const std::string& address) {
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.");
}

bool IsServed(const std::string& unix_path) {
  const int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return false;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, unix_path.c_str(), sizeof(address.sun_path) - 1);
  const bool served = connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(descriptor);
  return served;
}

}  // namespace msprobe::server
