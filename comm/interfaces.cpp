#include "comm/interfaces.hpp"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <iterator>
#include <sstream>

namespace onebatch::comm {
namespace {

std::uint32_t network_of(in_addr address, int prefix_bits) {
  const std::uint32_t bits = ntohl(address.s_addr);
  return prefix_bits == 0 ? 0 : bits >> (32 - prefix_bits);
}

bool is_within(in_addr address, in_addr network, int prefix_bits) {
  return network_of(address, prefix_bits) == network_of(network, prefix_bits);
}

std::string text_of(in_addr address) {
  std::array<char, INET_ADDRSTRLEN> text{};
  return inet_ntop(AF_INET, &address, text.data(), text.size()) == nullptr ? std::string() : text.data();
}

// "10.0.0.7/24"
std::optional<Interface> parse_network(const std::string& text) {
  const std::size_t slash = text.find('/');
  Interface read;
  if (slash == std::string::npos || inet_pton(AF_INET, text.substr(0, slash).c_str(), &read.address) != 1)
    return std::nullopt;
  const char* end = text.data() + text.size();
  const auto number = std::from_chars(text.data() + slash + 1, end, read.prefix_bits);
  if (number.ec != std::errc() || number.ptr != end || read.prefix_bits < 0 || read.prefix_bits > 32)
    return std::nullopt;
  return read;
}

bool is_named(const std::string& list, const Interface& one) {
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');) {
    const auto network = parse_network(word);
    if (word == one.name || (network && is_within(one.address, network->address, network->prefix_bits))) return true;
  }
  return false;
}

bool are_in_one_network(const Interface& own, const Interface& other, bool same_host) {
  if (own.is_loopback() || other.is_loopback()) return own.is_loopback() && other.is_loopback() && same_host;
  return own.address.s_addr != other.address.s_addr && own.prefix_bits < 32 &&
         is_within(other.address, own.address, own.prefix_bits);
}

std::vector<in_addr> shared_with(const HostInterfaces& own, const HostInterfaces& other) {
  std::vector<in_addr> found;
  for (const Interface& mine : own.all) {
    const auto reaches = [&](const Interface& theirs) {
      return are_in_one_network(mine, theirs, own.host == other.host);
    };
    if (std::ranges::any_of(other.all, reaches)) found.push_back(mine.address);
  }
  return found;
}

bool has(const HostInterfaces& host, in_addr address) {
  return std::ranges::any_of(host.all, [&](const Interface& one) { return one.address.s_addr == address.s_addr; });
}

std::vector<in_addr> routed_to(const HostInterfaces& own, const HostInterfaces& other, const SourceToward& source) {
  for (const Interface& theirs : other.all) {
    if (theirs.is_loopback() || has(own, theirs.address)) continue;
    const auto found = source(theirs.address);
    if (found && has(own, *found)) return {*found};
  }
  return {};
}

}  // namespace

bool Interface::is_loopback() const {
  return is_within(address, in_addr{htonl(INADDR_LOOPBACK)}, 8);
}

std::string HostInterfaces::to_text() const {
  std::string text;
  for (const Interface& one : all)
    text += fmt::format("{}{}/{}/{}", text.empty() ? "" : " ", one.name, text_of(one.address), one.prefix_bits);
  return text;
}

HostInterfaces HostInterfaces::from_text(std::string host, const std::string& text) {
  HostInterfaces read{std::move(host), {}};
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const std::size_t slash = word.find('/');
    auto one = slash == std::string::npos ? std::nullopt : parse_network(word.substr(slash + 1));
    if (!one) continue;
    one->name = word.substr(0, slash);
    read.all.push_back(*one);
  }
  return read;
}

std::vector<Interface> interfaces_of_this_machine() {
  std::vector<Interface> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET || (one->ifa_flags & IFF_UP) == 0) continue;
    const in_addr address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    const auto* mask = reinterpret_cast<const sockaddr_in*>(one->ifa_netmask);
    found.push_back({one->ifa_name, address, mask == nullptr ? 32 : std::popcount(mask->sin_addr.s_addr)});
  }
  freeifaddrs(all);
  return found;
}

std::vector<Interface> chosen_by(const std::string& list, const std::vector<Interface>& all) {
  if (list.empty()) return all;
  std::vector<Interface> chosen;
  std::ranges::copy_if(all, std::back_inserter(chosen),
                       [&](const Interface& one) { return one.is_loopback() || is_named(list, one); });
  return chosen;
}

std::vector<Interface> left_by(const std::string& list, const std::vector<Interface>& all) {
  std::vector<Interface> left;
  std::ranges::copy_if(all, std::back_inserter(left),
                       [&](const Interface& one) { return one.is_loopback() || !is_named(list, one); });
  return left;
}

std::optional<in_addr> source_toward(in_addr target) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr = target;
  address.sin_port = htons(9);  // any: a connected UDP socket sends nothing by itself
  const int descriptor = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return std::nullopt;
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool found = ::connect(descriptor, generic, length) == 0 && ::getsockname(descriptor, generic, &length) == 0;
  ::close(descriptor);
  return found ? std::optional(address.sin_addr) : std::nullopt;
}

std::vector<std::string> addresses_that_reach(const HostInterfaces& own, const std::vector<HostInterfaces>& others,
                                              const SourceToward& source) {
  std::vector<std::string> texts;
  for (const HostInterfaces& other : others) {
    std::vector<in_addr> found = shared_with(own, other);
    if (found.empty()) found = routed_to(own, other, source);
    for (const in_addr address : found) {
      const std::string text = text_of(address);
      if (std::ranges::find(texts, text) == texts.end()) texts.push_back(text);
    }
  }
  return texts;
}

}  // namespace onebatch::comm
