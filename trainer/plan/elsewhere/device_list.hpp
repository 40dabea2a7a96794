// "64xA100-80GB,64xV100-16GB": a cluster that need not be there, from profiles of its kinds of devices.
#pragma once

#include "trainer/base/profile.hpp"

#include <map>
#include <string_view>

namespace onebatch {

struct DeviceGroup {
  std::int64_t count = 0;
  std::string name;
};

/// Throws UserError that says what to write.
std::vector<DeviceGroup> parse_devices(std::string_view text);

/// Profiles of single devices by device_key().
using DeviceProfiles = std::map<std::string, RankProfile>;

/// Adds the devices of a profile under their names, and a file's only device under the file's name too.
void add_devices(DeviceProfiles& known, const ClusterProfile& profile, const std::string& file_stem);

/// A rank for each device of the list, in its order. Throws UserError that names what is known.
ClusterProfile make_cluster(const std::vector<DeviceGroup>& devices, const DeviceProfiles& known);

/// Letters and digits alone, in lower case, without "NVIDIA" and "GeForce": what is written of a name in a list.
std::string device_key(std::string_view name);

/// Prices of a device's hour, by device_key().
using Prices = std::map<std::string, double>;

/// "a100-80gb=2.5,v100-16gb=0.9". Throws UserError.
Prices parse_prices(std::string_view text);

}  // namespace onebatch
