#include "server/access/net_stream.h"

#include <boost/asio/write.hpp>
#include <utility>

namespace msprobe::server {

namespace net = boost::asio;
using boost::system::error_code;

NetStream::NetStream(Socket socket, net::ssl::context* tls) : stream_(std::in_place_type<Socket>, std::move(socket)) {
  if (tls == nullptr) return;
  Socket plain = std::move(std::get<Socket>(stream_));
  stream_.emplace<Secure>(std::move(plain), *tls);
}

NetStream::Socket& NetStream::socket() {
  auto* const secure = std::get_if<Secure>(&stream_);
  return secure == nullptr ? std::get<Socket>(stream_) : secure->next_layer();
}

SSL* NetStream::tls() {
  auto* const secure = std::get_if<Secure>(&stream_);
  return secure == nullptr ? nullptr : secure->native_handle();
}

void NetStream::Handshake(net::ssl::stream_base::handshake_type side, Handler handler) {
  std::get<Secure>(stream_).async_handshake(side,
                                            [handler = std::move(handler)](error_code error) { handler(error, 0); });
}

void NetStream::Read(net::mutable_buffer into, Handler handler) {
  std::visit([&](auto& stream) { stream.async_read_some(into, std::move(handler)); }, stream_);
}

void NetStream::Write(const std::vector<net::const_buffer>& bytes, Handler handler) {
  std::visit([&](auto& stream) { net::async_write(stream, bytes, std::move(handler)); }, stream_);
}

void NetStream::Shutdown(Handler handler) {
  std::get<Secure>(stream_).async_shutdown([handler = std::move(handler)](error_code error) { handler(error, 0); });
}

}  // namespace msprobe::server
