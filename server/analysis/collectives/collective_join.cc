#include "server/analysis/collectives/collective_join.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/hash/hash.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using CallKind = CommunicationCall::Kind;

// Hashes of the first n calls, by n. Lines of the program do not count.
std::vector<size_t> PrefixHashes(const CallList& calls) {
  std::vector<size_t> hashes = {0};
  for (const CommunicationCall* call : calls) {
    hashes.push_back(
        absl::HashOf(hashes.back(), call->operation, call->dtype, call->shape, call->reduce_op, call->root));
  }
  return hashes;
}

// The rank whose calls most ranks agree with as far as both have come.
uint32_t ReferenceOf(const std::map<uint32_t, CallList>& calls) {
  struct Opinion {
    std::vector<size_t> hashes;
    std::vector<uint32_t> ranks;
  };
  std::map<size_t, Opinion> opinions;  // by hash of everything
  for (const auto& [rank, list] : calls) {
    std::vector<size_t> hashes = PrefixHashes(list);
    Opinion& opinion = opinions[absl::HashOf(hashes.back(), list.size())];
    if (opinion.ranks.empty()) opinion.hashes = std::move(hashes);
    opinion.ranks.push_back(rank);
  }
  const Opinion* best = nullptr;
  std::tuple<size_t, size_t> best_weight;
  for (const auto& [hash, opinion] : opinions) {
    size_t support = 0;
    for (const auto& [other_hash, other] : opinions) {
      const size_t both = std::min(opinion.hashes.size(), other.hashes.size()) - 1;
      if (opinion.hashes[both] == other.hashes[both]) support += other.ranks.size();
    }
    const std::tuple weight(support, opinion.hashes.size());
    const bool better = best == nullptr || weight > best_weight ||
                        (weight == best_weight && opinion.ranks.front() < best->ranks.front());
    if (!better) continue;
    best = &opinion;
    best_weight = weight;
  }
  return best->ranks.front();
}

// What one rank did otherwise than the reference, before ranks with the same are put together.
struct Odd {
  MismatchKind kind = MismatchKind::kMissed;
  int32_t place = 0;  // in the reference: of what it missed or did otherwise, or before which the extra one stands
  const CommunicationCall* ours = nullptr;
  const CommunicationCall* theirs = nullptr;
};

std::vector<Odd> OddsOf(const CallList& reference, bool reference_ended, const CallList& calls, bool ended,
                        const std::vector<AlignedCall>& aligned) {
  // Behind the last call of a rank that goes on nothing is missed, nor extra behind the last of the reference.
  size_t missed_until = aligned.size();
  while (!ended && missed_until > 0 && aligned[missed_until - 1].other < 0) --missed_until;
  size_t extra_until = aligned.size();
  while (!reference_ended && extra_until > 0 && aligned[extra_until - 1].reference < 0) --extra_until;
  std::vector<Odd> odds;
  int32_t next_reference = 0;
  int32_t next_other = 0;
  const auto at = [](const CallList& list, int32_t index) {
    return static_cast<size_t>(index) < list.size() ? list[static_cast<size_t>(index)] : nullptr;
  };
  for (size_t i = 0; i < aligned.size(); ++i) {
    const AlignedCall& pair = aligned[i];
    if (pair.reference >= 0) next_reference = pair.reference + 1;
    if (pair.other >= 0) next_other = pair.other + 1;
    if (pair.other < 0) {
      if (i < missed_until) {
        odds.push_back({MismatchKind::kMissed, pair.reference, at(calls, next_other), at(reference, pair.reference)});
      }
    } else if (pair.reference < 0) {
      if (i < extra_until) {
        odds.push_back({MismatchKind::kExtra, next_reference, at(calls, pair.other), at(reference, next_reference)});
      }
    } else if (const CommunicationCall* ours = at(calls, pair.other), *theirs = at(reference, pair.reference);
               !Differing(*ours, *theirs).empty()) {
      odds.push_back({MismatchKind::kDiffers, pair.reference, ours, theirs});
    }
  }
  // One that it missed here and made there.
  for (Odd& missed : odds) {
    if (missed.kind != MismatchKind::kMissed) continue;
    const auto extra = std::find_if(odds.begin(), odds.end(), [&](const Odd& each) {
      return each.kind == MismatchKind::kExtra && each.ours->stack == missed.theirs->stack &&
             Differing(*each.ours, *missed.theirs).empty();
    });
    if (extra == odds.end()) continue;
    missed.kind = MismatchKind::kReordered;
    missed.ours = extra->ours;
    extra->kind = MismatchKind::kReordered;
    extra->theirs = nullptr;  // told by the other
  }
  std::erase_if(odds, [](const Odd& each) { return each.kind == MismatchKind::kReordered && each.theirs == nullptr; });
  return odds;
}

std::string ChannelOf(const CommunicationCall& call) {
  const bool sends = call.kind == CallKind::kSend;
  const int64_t from = sends ? int64_t{call.rank} : call.peer;
  const int64_t to = sends ? call.peer : int64_t{call.rank};
  return Cat(from, ">", to, " ", call.tag, " ", call.group);
}

std::string SideOf(const CommunicationCall& call, bool sends) { return Cat(sends ? "s " : "r ", ChannelOf(call)); }

}  // namespace

CollectiveJoin::CollectiveJoin(const std::vector<RankCalls>& ranks) {
  std::map<std::string, std::set<uint32_t>> members;
  for (const RankCalls& of : ranks) {
    ended_[of.rank] = of.ended;
    for (const CommunicationCall& call : of.calls) {
      if (call.kind != CallKind::kCollective) continue;
      groups_[call.group].calls[of.rank].push_back(&call);
      members[call.group].insert(call.members.begin(), call.members.end());
    }
  }
  for (auto& [name, group] : groups_) {
    for (const RankCalls& of : ranks) {
      if (members[name].contains(of.rank)) group.calls.try_emplace(of.rank);
    }
    Join(name, group);
  }
  JoinMessages(ranks);
  std::stable_sort(mismatches_.begin(), mismatches_.end(), [](const auto& a, const auto& b) {
    const auto began = [](const CollectiveMismatch& of) {
      return of.of_others != nullptr ? of.of_others->began_unix_us : of.of_odd->began_unix_us;
    };
    return began(a) < began(b);
  });
}

void CollectiveJoin::Join(const std::string& name, Group& group) {
  const uint32_t reference_rank = ReferenceOf(group.calls);
  const CallList& reference = group.calls.at(reference_rank);
  std::vector<std::pair<Odd, std::vector<uint32_t>>> odds;
  std::vector<std::set<uint32_t>> odd_at(reference.size() + 1);
  for (const auto& [rank, calls] : group.calls) {
    std::vector<int32_t>& places = group.places[rank];
    std::vector<const CommunicationCall*>& by_place = group.by_place[rank];
    places.assign(calls.size(), -1);
    by_place.assign(reference.size(), nullptr);
    const std::vector<AlignedCall> aligned = Align(reference, calls);
    for (const AlignedCall& pair : aligned) {
      if (pair.reference < 0 || pair.other < 0) continue;
      const CommunicationCall* const call = calls[static_cast<size_t>(pair.other)];
      if (call->operation != reference[static_cast<size_t>(pair.reference)]->operation) continue;
      places[static_cast<size_t>(pair.other)] = pair.reference;
      by_place[static_cast<size_t>(pair.reference)] = call;
    }
    for (const Odd& odd : OddsOf(reference, ended_.at(reference_rank), calls, ended_.at(rank), aligned)) {
      odd_at[static_cast<size_t>(odd.place)].insert(rank);
      const auto same = std::find_if(odds.begin(), odds.end(), [&](const auto& each) {
        const Odd& of = each.first;
        if (of.kind != odd.kind || of.place != odd.place) return false;
        if (of.ours == nullptr || odd.ours == nullptr) return of.ours == odd.ours;
        return odd.kind == MismatchKind::kMissed || Differing(*of.ours, *odd.ours).empty();
      });
      if (same == odds.end()) {
        odds.push_back({odd, {rank}});
      } else {
        same->second.push_back(rank);
      }
    }
  }
  for (auto& [odd, ranks] : odds) {
    CollectiveMismatch& mismatch = mismatches_.emplace_back();
    mismatch.kind = odd.kind;
    mismatch.group = name;
    mismatch.odd = std::move(ranks);
    for (const auto& [rank, calls] : group.calls) {
      if (!odd_at[static_cast<size_t>(odd.place)].contains(rank)) mismatch.others.push_back(rank);
    }
    mismatch.of_odd = odd.ours;
    mismatch.of_others = odd.theirs;
    if (odd.kind == MismatchKind::kDiffers) mismatch.differing = Differing(*odd.ours, *odd.theirs);
  }
}

struct CollectiveJoin::Channel {
  CallList sends;
  CallList receives;
};

void CollectiveJoin::JoinMessages(const std::vector<RankCalls>& ranks) {
  std::map<std::string, Channel> channels;
  std::set<std::pair<uint32_t, std::string>> from_any;  // a rank, a group
  for (const RankCalls& of : ranks) {
    for (const CommunicationCall& call : of.calls) {
      if (call.kind == CallKind::kCollective) continue;
      if (call.peer == CommunicationCall::kAnyPeer) {
        from_any.emplace(of.rank, call.group);
        continue;
      }
      Channel& channel = channels[ChannelOf(call)];
      (call.kind == CallKind::kSend ? channel.sends : channel.receives).push_back(&call);
      ++messages_[SideOf(call, call.kind == CallKind::kSend)];
    }
  }
  const auto add = [&](MismatchKind kind, uint32_t odd, const CommunicationCall* ours,
                       const CommunicationCall* theirs) {
    mismatches_.push_back({kind, theirs->group, {odd}, {theirs->rank}, {}, ours, theirs});
  };
  const auto has_ended = [&](int64_t rank) {
    const auto found = ended_.find(static_cast<uint32_t>(rank));
    return found != ended_.end() && found->second;
  };
  for (const auto& [name, channel] : channels) {
    const CommunicationCall& any = channel.sends.empty() ? *channel.receives.front() : *channel.sends.front();
    const int64_t receiver = any.kind == CallKind::kSend ? any.peer : int64_t{any.rank};
    if (from_any.contains({static_cast<uint32_t>(receiver), any.group})) continue;
    const size_t both = std::min(channel.sends.size(), channel.receives.size());
    for (size_t i = 0; i < both; ++i) {
      const CommunicationCall& sent = *channel.sends[i];
      const CommunicationCall& received = *channel.receives[i];
      std::vector<std::string> differing;
      if (sent.dtype != received.dtype) differing.emplace_back("dtype");
      if (sent.bytes != received.bytes) differing.emplace_back("shape");
      if (differing.empty()) continue;
      add(MismatchKind::kDiffers, received.rank, &received, &sent);
      mismatches_.back().differing = std::move(differing);
    }
    for (const CallList* list : {&channel.sends, &channel.receives}) {
      for (size_t i = both; i < list->size(); ++i) {
        const CommunicationCall& call = *(*list)[i];
        if (has_ended(call.peer)) add(MismatchKind::kMissed, static_cast<uint32_t>(call.peer), nullptr, &call);
      }
    }
  }
}

bool CollectiveJoin::HasMade(uint32_t rank, const CommunicationCall& call) const {
  if (call.kind != CallKind::kCollective) {
    const std::string side = SideOf(call, call.kind != CallKind::kSend);
    const auto found = messages_.find(side);
    return found != messages_.end() && found->second > call.sequence;
  }
  const auto group = groups_.find(call.group);
  if (group == groups_.end()) return false;
  const auto ours = group->second.places.find(call.rank);
  const auto theirs = group->second.by_place.find(rank);
  if (ours == group->second.places.end() || theirs == group->second.by_place.end()) return false;
  const CallList& calls = group->second.calls.at(call.rank);
  const auto index = static_cast<size_t>(std::find(calls.begin(), calls.end(), &call) - calls.begin());
  if (index >= calls.size() || ours->second[index] < 0) return false;
  return theirs->second[static_cast<size_t>(ours->second[index])] != nullptr;
}

}  // namespace msprobe::server
