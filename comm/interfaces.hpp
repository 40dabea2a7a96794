// At which of its addresses a host listens to the ranks of the others: the decision apart from the system calls.
#pragma once

#include <netinet/in.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace onebatch::comm {

struct Interface {
  std::string name;
  in_addr address{};
  int prefix_bits = 32;  // of the address that name its network

  [[nodiscard]] bool is_loopback() const;
};

/// What a host has, and as ranks tell each other: "eth0/10.0.0.7/24 ib0/10.1.0.7/16".
struct HostInterfaces {
  std::string host;
  std::vector<Interface> all;

  [[nodiscard]] std::string to_text() const;
  /// What is not so written is left out.
  static HostInterfaces from_text(std::string host, const std::string& text);
};

/// Those of this machine that are up and have an IPv4 address.
std::vector<Interface> interfaces_of_this_machine();

/// Those that "eth0,10.1.0.0/16" (as Open MPI's btl_tcp_if_include has it) names, and the loopback. An empty text names
/// all.
std::vector<Interface> chosen_by(const std::string& list, const std::vector<Interface>& all);
/// Those that such a list (btl_tcp_if_exclude) does not name, and the loopback.
std::vector<Interface> left_by(const std::string& list, const std::vector<Interface>& all);

/// The address that the kernel would send from to get there.
using SourceToward = std::function<std::optional<in_addr>(in_addr)>;
std::optional<in_addr> source_toward(in_addr target);

/// The addresses of this host in one network with another host; toward one that shares none, what `source` says:
/// routers connect those. An address that both have is no way there (docker0 has the same on every host), and the
/// loopback leads to a host of one's own name alone.
std::vector<std::string> addresses_that_reach(const HostInterfaces& own, const std::vector<HostInterfaces>& others,
                                              const SourceToward& source = source_toward);

}  // namespace onebatch::comm
