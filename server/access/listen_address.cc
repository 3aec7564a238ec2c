#include "server/access/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

constexpr int kMaxPort = 65535;
constexpr std::string_view kMapped("\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);  // in front of an IPv4 address in IPv6

absl::Status Bad(std::string_view flag, std::string_view value, std::string_view why, std::string_view allowed) {
  return absl::InvalidArgumentError(Cat("--", flag, "=", value, ": ", why, "; allowed ", allowed));
}

bool IsName(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_';
  });
}

// The bytes of an address in network order, without a zone (%eth0). Empty: the text is not an address.
std::string AddressBytes(int family, std::string_view text) {
  std::string bytes(family == AF_INET ? sizeof(in_addr) : sizeof(in6_addr), '\0');
  const std::string terminated(text.substr(0, text.find('%')));
  return inet_pton(family, terminated.c_str(), bytes.data()) == 1 ? bytes : std::string();
}

std::optional<ListenAddress> TcpAddress(const std::string& text) {
  const std::optional<HostPort> parsed = ParseHostPort(text);
  if (!parsed.has_value() || !parsed->port.has_value()) return std::nullopt;
  return ListenAddress{text, "", parsed->host, *parsed->port, IsLoopback(*parsed)};
}

}  // namespace

std::optional<HostPort> ParseHostPort(std::string_view text) {
  HostPort parsed;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    parsed.host = text.substr(1, end - 1);
    if (AddressBytes(AF_INET6, parsed.host).empty()) return std::nullopt;
    text.remove_prefix(end + 1);
  } else {
    parsed.host = text.substr(0, text.find(':'));
    if (!IsName(parsed.host)) return std::nullopt;
    text.remove_prefix(parsed.host.size());
  }
  if (text.empty()) return parsed;
  if (text.front() != ':') return std::nullopt;
  text.remove_prefix(1);
  const bool decimal = !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  int port = 0;
  if (!decimal || !absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &port) || port > kMaxPort) {
    return std::nullopt;
  }
  parsed.port = port;
  return parsed;
}

bool IsLoopback(const HostPort& host) {
  if (absl::EqualsIgnoreCase(host.host, "localhost")) return true;
  if (const std::string address = AddressBytes(AF_INET, host.host); !address.empty()) return address[0] == 127;
  if (host.host.find('%') != std::string::npos) return false;
  const std::string address = AddressBytes(AF_INET6, host.host);
  if (address.empty()) return false;
  if (address.starts_with(kMapped)) return address[kMapped.size()] == 127;
  return address == AddressBytes(AF_INET6, "::1");
}

absl::StatusOr<std::vector<ListenAddress>> ParseListen(const std::string& value) {
  constexpr std::string_view kAllowed = "are host:port and unix:/path, several separated by commas";
  const auto bad = [&](std::string_view why) { return Bad("listen", value, why, kAllowed); };
  std::vector<ListenAddress> addresses;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(value, ','))) {
    if (absl::StartsWith(part, "unix:")) {
      ListenAddress address{part, part.substr(5), "", 0, true};
      if (!absl::StartsWith(address.unix_path, "/")) return bad("the path of a unix socket must be absolute");
      if (address.unix_path.size() >= sizeof(sockaddr_un::sun_path)) {
        return bad(Cat("the path of a unix socket has ", address.unix_path.size(), " bytes, at most ",
                       sizeof(sockaddr_un::sun_path) - 1));
      }
      addresses.push_back(std::move(address));
      continue;
    }
    std::optional<ListenAddress> address = TcpAddress(part);
    if (!address.has_value()) return bad(Cat("\"", part, "\" is not host:port with a port of 0 to 65535"));
    addresses.push_back(*std::move(address));
  }
  return addresses;
}

absl::StatusOr<ListenAddress> ParseListenTcp(std::string_view flag, const std::string& value) {
  std::optional<ListenAddress> address = TcpAddress(value);
  if (address.has_value()) return *std::move(address);
  return Bad(flag, value, "it is not one host:port with a port of 0 to 65535", "is, for example, 127.0.0.1:8080");
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
