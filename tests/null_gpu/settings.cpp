#include "settings.hpp"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace null_gpu {
namespace {

using Json = nlohmann::json;

Device read_device(const Json& document) {
  Device device;
  for (const auto& [key, value] : document.items()) {
    if (key == "name") {
      device.name = value;
    } else if (key == "memory") {
      device.memory = value;
    } else if (key == "reserved") {
      device.reserved = value;
    } else if (key == "slot") {
      device.slot = value;
    } else if (key == "bus") {
      device.bus = value;
    } else if (key == "compute_capability") {
      const std::string text = value;
      device.major = std::stoi(text.substr(0, text.find('.')));
      device.minor = std::stoi(text.substr(text.find('.') + 1));
    } else {
      throw std::invalid_argument("devices: no key \"" + key + "\"");
    }
  }
  return device;
}

NcclSettings read_nccl(const Json& document) {
  NcclSettings nccl;
  for (const auto& [key, value] : document.items()) {
    if (key == "memory") {
      nccl.memory = value;
    } else if (key == "from_bytes") {
      nccl.from_bytes = value;
    } else if (key == "in_progress") {
      nccl.in_progress = value;
    } else if (key == "hang_at") {
      nccl.hang_at = value;
    } else if (key == "fail_at") {
      nccl.fail_at = value;
    } else {
      throw std::invalid_argument("nccl: no key \"" + key + "\"");
    }
  }
  return nccl;
}

void read_key(Settings& settings, const std::string& key, const Json& value) {
  if (key == "devices") {
    settings.devices.clear();
    for (const Json& device : value) settings.devices.push_back(read_device(device));
  } else if (key == "driver") {
    settings.driver = value;
  } else if (key == "peer_access") {
    settings.peer_access = value;
  } else if (key == "lag_milliseconds") {
    settings.lag_seconds = value.get<double>() / 1000.0;
  } else if (key == "fail_allocation") {
    settings.fail_allocation = value;
  } else if (key == "host_memory") {
    settings.host_memory = value;
  } else if (key == "drop_waits") {
    settings.drop_waits = value;
  } else if (key == "own_kernels") {
    settings.own_kernels = value;
  } else if (key == "session") {
    settings.session = value;
  } else if (key == "counts") {
    settings.counts = value;
  } else if (key == "stops") {
    settings.stops = value;
  } else if (key == "nccl") {
    settings.nccl = read_nccl(value);
  } else {
    throw std::invalid_argument("no key \"" + key + "\"");
  }
}

Settings read() {
  Settings settings;
  const char* text = std::getenv("NULL_GPU");
  if (text == nullptr) return settings;
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  try {
    Json document = Json::parse(text);
    const Json ranks = document.value("ranks", Json::object());
    document.erase("ranks");
    if (rank != nullptr && ranks.contains(rank)) document.merge_patch(ranks[rank]);
    for (const auto& [key, value] : document.items()) read_key(settings, key, value);
    for (std::size_t i = 0; i < settings.devices.size(); ++i) {
      if (settings.devices[i].slot < 0) settings.devices[i].slot = static_cast<int>(i);
      if (settings.devices[i].bus < 0) settings.devices[i].bus = settings.devices[i].slot;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "NULL_GPU: %s\n", error.what());
    std::_Exit(70);
  }
  return settings;
}

}  // namespace

const Settings& settings() {
  static const Settings* const read_once = new Settings(read());  // others end after us and still ask
  return *read_once;
}

}  // namespace null_gpu
