#include "comm/interfaces.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>

namespace onebatch::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

HostInterfaces host(const std::string& name, const std::string& interfaces) {
  return HostInterfaces::from_text(name, interfaces);
}

in_addr address(const char* text) {
  in_addr read{};
  EXPECT_EQ(inet_pton(AF_INET, text, &read), 1) << text;
  return read;
}

std::optional<in_addr> no_route(in_addr) {
  return std::nullopt;
}

TEST(HostInterfacesTest, are_read_as_they_are_written) {
  const std::string text = "lo/127.0.0.1/8 eth0/10.0.0.7/24 eth0/10.0.9.7/0";
  EXPECT_EQ(host("a", text).to_text(), text);
}

TEST(HostInterfacesTest, what_is_not_so_written_is_left_out) {
  EXPECT_EQ(
      host("a", "eth0 eth0/ eth0/10.0.0.7 eth0/10.0.0/8 eth0/10.0.0.7/33 eth0/10.0.0.7/-1 eth0/10.0.0.7/8x e/1.2.3.4/5")
          .to_text(),
      "e/1.2.3.4/5");
}

TEST(AddressesThatReachTest, are_those_in_a_network_with_another_host) {
  const HostInterfaces own = host("a", "lo/127.0.0.1/8 eth0/10.0.0.1/24 ib0/10.1.0.1/16 wlan0/192.168.4.7/24");
  const std::vector<HostInterfaces> others = {host("b", "lo/127.0.0.1/8 eth0/10.0.0.2/24"),
                                              host("c", "eth0/10.0.1.3/24 ib0/10.1.7.7/16")};
  EXPECT_THAT(addresses_that_reach(own, others, no_route), ElementsAre("10.0.0.1", "10.1.0.1"));
}

TEST(AddressesThatReachTest, an_address_that_both_hosts_have_leads_nowhere) {
  const HostInterfaces own = host("a", "docker0/172.17.0.1/16 eth0/10.0.0.1/24");
  EXPECT_THAT(addresses_that_reach(own, {host("b", "docker0/172.17.0.1/16 eth0/10.0.0.2/24")}, no_route),
              ElementsAre("10.0.0.1"));
}

TEST(AddressesThatReachTest, the_loopback_leads_to_this_host_alone) {
  const HostInterfaces own = host("a", "lo/127.0.0.1/8 eth0/10.0.0.1/24");
  EXPECT_THAT(addresses_that_reach(own, {own}, no_route), ElementsAre("127.0.0.1"));
  EXPECT_THAT(addresses_that_reach(own, {host("b", "lo/127.0.0.1/8")}, no_route), IsEmpty());
}

TEST(AddressesThatReachTest, toward_a_host_behind_a_router_the_kernel_knows_the_way) {
  const HostInterfaces own = host("a", "eth0/10.0.0.1/24 eth1/10.9.0.1/24 docker0/172.17.0.1/16");
  const auto by_eth1 = [](in_addr target) {
    EXPECT_EQ(target.s_addr, address("10.5.0.1").s_addr) << "docker0's is this host's own";
    return std::optional(address("10.9.0.1"));
  };
  EXPECT_THAT(addresses_that_reach(own, {host("b", "docker0/172.17.0.1/16 eth0/10.5.0.1/24")}, by_eth1),
              ElementsAre("10.9.0.1"));
}

TEST(AddressesThatReachTest, a_way_by_an_interface_that_mpi_may_not_use_is_none) {
  const auto by_another = [](in_addr) { return std::optional(address("192.168.0.1")); };
  EXPECT_THAT(addresses_that_reach(host("a", "eth0/10.0.0.1/24"), {host("b", "eth0/10.5.0.1/24")}, by_another),
              IsEmpty());
}

TEST(AddressesThatReachTest, an_address_without_a_network_shares_none) {
  EXPECT_THAT(addresses_that_reach(host("a", "tun0/10.0.0.1/32"), {host("b", "tun0/10.0.0.2/32")}, no_route),
              IsEmpty());
}

TEST(ChosenByTest, takes_names_and_networks_and_the_loopback) {
  const std::vector<Interface> all = host("a", "lo/127.0.0.1/8 eth0/10.0.0.1/24 ib0/10.1.0.1/16 ib1/10.2.0.1/16").all;
  const auto chosen = [&](const char* list) { return HostInterfaces{"a", chosen_by(list, all)}.to_text(); };
  EXPECT_EQ(chosen("eth0,10.2.0.0/16"), "lo/127.0.0.1/8 eth0/10.0.0.1/24 ib1/10.2.0.1/16");
  EXPECT_EQ(chosen("ib"), "lo/127.0.0.1/8");
  EXPECT_EQ(chosen(""), (HostInterfaces{"a", all}.to_text()));
}

TEST(LeftByTest, leaves_out_names_and_networks_but_the_loopback) {
  const std::vector<Interface> all = host("a", "lo/127.0.0.1/8 eth0/10.0.0.1/24 ib0/10.1.0.1/16 ib1/10.2.0.1/16").all;
  const auto left = [&](const char* list) { return HostInterfaces{"a", left_by(list, all)}.to_text(); };
  EXPECT_EQ(left("eth0,10.2.0.0/16"), "lo/127.0.0.1/8 ib0/10.1.0.1/16");
  EXPECT_EQ(left("127.0.0.1/8,sppp"), (HostInterfaces{"a", all}.to_text())) << "what Open MPI has where nobody says";
  EXPECT_EQ(left(""), (HostInterfaces{"a", all}.to_text()));
}

TEST(InterfacesTest, of_this_machine_have_a_loopback_that_leads_to_itself) {
  const std::vector<Interface> all = interfaces_of_this_machine();
  EXPECT_TRUE(std::ranges::any_of(all, &Interface::is_loopback));
  EXPECT_EQ(source_toward(address("127.0.0.1")).value().s_addr, address("127.0.0.1").s_addr);
}

}  // namespace
}  // namespace onebatch::comm
