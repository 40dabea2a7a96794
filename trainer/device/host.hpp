// The host as a device of the trainer.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/device/memory_budget.hpp"

namespace onebatch {

/// Has no limit itself; that of the device which the process plays is lifted by UnlimitedMemory.
class Host final : public ComputeDevice {
 public:
  c10::Device device() const override { return c10::Device(c10::kCPU); }
  std::string name() const override { return "host"; }
  std::int64_t memory_limit_bytes() const override { return MemoryBudget::k_no_limit; }
  std::int64_t current_bytes() const override { return 0; }
  std::int64_t peak_bytes() const override { return 0; }
  void reset_peak() override {}
  void empty_cache() override {}
  void synchronize() override {}
};

/// All numbers of one type, whatever the run mixes.
inline Configuration in_precision(Precision precision, Configuration configuration) {
  configuration.precision = PrecisionConfiguration();
  configuration.precision.compute = configuration.precision.parameters = precision;
  return configuration;
}

}  // namespace onebatch
