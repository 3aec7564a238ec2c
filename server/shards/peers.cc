#include "server/shards/peers.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

namespace msprobe::server {
namespace {

constexpr size_t kMaxRunsRemembered = 10'000;

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const PeersOptions& options) {
  if (options.ca.empty()) return grpc::InsecureChannelCredentials();
  const auto interval = static_cast<unsigned int>(options.reload_seconds);
  grpc::experimental::TlsChannelCredentialsOptions tls;
  if (options.cert.empty()) {
    tls.set_certificate_provider(
        std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(options.ca, interval));
  } else {
    tls.set_certificate_provider(std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
        options.key, options.cert, options.ca, interval));
    tls.watch_identity_key_cert_pairs();
  }
  tls.watch_root_certs();
  return grpc::experimental::TlsCredentials(tls);
}

}  // namespace

Peers::Peers(PeersOptions options) : options_(std::move(options)), credentials_(CredentialsOf(options_)) {}

Peer* Peers::Find(const std::string& address) {
  if (address == options_.this_shard) return nullptr;
  absl::MutexLock lock(&mu_);
  std::unique_ptr<Peer>& peer = peers_[address];
  if (peer == nullptr) {
    const bool socket = address.starts_with("unix:");
    peer = std::make_unique<Peer>(address, socket ? grpc::InsecureChannelCredentials() : credentials_,
                                  options_.token_file);
  }
  return peer.get();
}

std::vector<Peer*> Peers::Others(const ShardList& shards) {
  std::vector<Peer*> others;
  for (const std::string& shard : shards) {
    if (Peer* peer = Find(shard); peer != nullptr) others.push_back(peer);
  }
  return others;
}

void Peers::NoteRanks(const std::string& run, const std::string& shard, std::set<uint32_t> ranks) {
  absl::MutexLock lock(&mu_);
  if (ranks_.size() >= kMaxRunsRemembered) ranks_.clear();
  ranks_[{run, shard}] = std::move(ranks);
}

std::set<uint32_t> Peers::LastRanks(const std::string& run, const std::string& shard) const {
  absl::MutexLock lock(&mu_);
  const auto found = ranks_.find({run, shard});
  return found == ranks_.end() ? std::set<uint32_t>() : found->second;
}

}  // namespace msprobe::server
