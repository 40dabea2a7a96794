// Which cores a rank should compute on: those near its GPU, and no more than its part of them. By hwloc.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace onebatch {

class Topology {
 public:
  /// This machine, as far as this process may use it.
  static Topology here();
  /// As hwloc has written it. Throws std::invalid_argument where the text is none.
  static Topology from_xml(const std::string& text);
  ~Topology();
  Topology(Topology&&) noexcept;
  Topology& operator=(Topology&&) noexcept;

  [[nodiscard]] int num_packages() const;
  [[nodiscard]] int num_numa_nodes() const;
  [[nodiscard]] int num_cores() const;
  /// Processors (operating system's numbers) that may be used.
  [[nodiscard]] std::vector<int> allowed_processors() const;
  /// Those of them near a PCI device ("0000:3b:00.0"); all that are allowed where the device is not known or near none
  /// of them.
  [[nodiscard]] std::vector<int> processors_near(const std::string& pci_bus_id) const;

 private:
  struct State;
  explicit Topology(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// A rank's part of the processors, given what is near each rank of the node: ranks with the same share it in equal
/// runs, one each at least.
[[nodiscard]] std::vector<int> part_of_rank(const std::vector<std::vector<int>>& near_of_ranks, int node_local_rank);

/// "0-3,8": as the operating system writes lists of processors.
[[nodiscard]] std::string processor_list(const std::vector<int>& processors);

/// Lets this process, and the threads that it will start, run on these alone. False where the system does not allow it.
bool bind_process(const std::vector<int>& processors);

}  // namespace onebatch
