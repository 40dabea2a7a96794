// "64xA100-80GB,64xV100-16GB": a cluster that need not be there, from profiles of its kinds of devices.
#pragma once

#include "trainer/base/profile.hpp"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace onebatch {

struct DeviceGroup {
  std::int64_t count = 0;
  std::string name;
};

/// Throws UserError that says what to write.
std::vector<DeviceGroup> parse_devices(std::string_view text);

/// A device's profile, and the file that has it.
struct KnownProfile {
  KnownProfile(RankProfile of_device, std::string stem = {}, bool is_by_file = false)
      : profile(std::move(of_device)), file(std::move(stem)), by_file(is_by_file) {}

  RankProfile profile;
  std::string file;  // its stem
  bool by_file;      // known by that, and not by the device's name
};

/// By device_key(); several under one, where several files have the device.
using DeviceProfiles = std::multimap<std::string, KnownProfile>;

/// Adds the devices of a profile under their names, and a file's only device under the file's name too.
void add_devices(DeviceProfiles& known, const ClusterProfile& profile, const std::string& file_stem);

/// A rank for each device of the list, in its order; a file's name goes before a device's. Throws UserError that names
/// what is known, or the files that have different profiles of a device.
ClusterProfile make_cluster(const std::vector<DeviceGroup>& devices, const DeviceProfiles& known);

/// Letters and digits alone, in lower case, without "NVIDIA" and "GeForce": what is written of a name in a list.
std::string device_key(std::string_view name);

/// Prices of a device's hour, by device_key().
using Prices = std::map<std::string, double>;

/// "a100-80gb=2.5,v100-16gb=0.9". Throws UserError.
Prices parse_prices(std::string_view text);

}  // namespace onebatch
