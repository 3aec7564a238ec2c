#include "server/analysis/graph/communication_partners.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/analysis/table/memory_table.h"
#include "server/format/cat.h"

namespace msprobe::server {
namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;

std::string WithArgument(const std::string& name, int value) {
  return Cat(R"({"input_kwargs": {")", name, R"(": {"type": "int", "value": )", value, "}}}");
}

// "0 Distributed.send.0.forward: send 1 Distributed.recv.0.forward"
std::vector<std::string> PartnersOf(const std::vector<Entries>& ranks) {
  CommunicationPartners partners;
  std::vector<std::string> names;  // by number
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const MemoryTable step(ranks[rank]);
    for (const Entry& entry : step.table().entries) {
      partners.Add(0, static_cast<uint32_t>(rank), step.table(), entry, "pass", static_cast<int64_t>(names.size()));
      names.emplace_back(entry.name);
    }
  }
  std::vector<std::string> found;
  const absl::Status status = partners.ForEach([&](int64_t number, uint32_t rank, std::string_view name,
                                                   const std::vector<CommunicationPartners::Communication>& each) {
    EXPECT_EQ(names[static_cast<size_t>(number)], name);
    std::string text = Cat(rank, " ", name, ":");
    for (const CommunicationPartners::Communication& communication : each) {
      constexpr std::string_view kRoles[] = {"send", "receive", "both"};
      text += Cat(" ", kRoles[static_cast<size_t>(communication.role)]);
      for (const auto& partner : communication.partners) text += Cat(" ", partner.rank, " ", partner.name);
    }
    found.push_back(text);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok());
  return found;
}

TEST(CommunicationPartnersTest, JoinsASendAndItsReceive) {
  EXPECT_EQ(PartnersOf({{{"Distributed.send.0.forward", WithArgument("dst", 1)}},
                        {{"Torch.add.0.forward", "{}"}, {"Distributed.recv.0.forward", WithArgument("src", 0)}}}),
            (std::vector<std::string>{"0 Distributed.send.0.forward: send 1 Distributed.recv.0.forward",
                                      "1 Distributed.recv.0.forward: receive 0 Distributed.send.0.forward"}));
}

TEST(CommunicationPartnersTest, JoinsCollectivesInTheirOrder) {
  const Entries two = {{"Distributed.all_reduce.0.forward", "{}"}, {"Distributed.all_reduce.1.forward", "{}"}};
  EXPECT_EQ(PartnersOf({two, {{"Distributed.all_reduce.0.forward", "{}"}}}),
            (std::vector<std::string>{"0 Distributed.all_reduce.0.forward: both 1 Distributed.all_reduce.0.forward",
                                      "1 Distributed.all_reduce.0.forward: both 0 Distributed.all_reduce.0.forward"}));
}

TEST(CommunicationPartnersTest, KnowsWhoBroadcasts) {
  const Entries from_one = {{"Distributed.broadcast.0.forward", WithArgument("src", 1)}};
  const std::string name = "Distributed.broadcast.0.forward";
  EXPECT_EQ(
      PartnersOf({from_one, from_one, from_one}),
      (std::vector<std::string>{Cat("0 ", name, ": receive 1 ", name), Cat("1 ", name, ": send 0 ", name, " 2 ", name),
                                Cat("2 ", name, ": receive 1 ", name)}));
}

}  // namespace
}  // namespace msprobe::server
