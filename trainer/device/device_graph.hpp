// Work on a device that is recorded once and started as a whole from then on.
#pragma once

#include <functional>
#include <memory>
#include <vector>

namespace onebatch {

/// What was recorded. It reads and writes the addresses that the work did, whatever lies there by then.
class DeviceGraph {
 public:
  DeviceGraph() = default;
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;
  virtual ~DeviceGraph() = default;

  /// Puts all of it on the calling thread's stream.
  virtual void replay() = 0;
};

/// Records graphs that take their memory from one pool: only one of them may be under way at a time.
class DeviceGraphs {
 public:
  DeviceGraphs() = default;
  DeviceGraphs(const DeviceGraphs&) = delete;
  DeviceGraphs& operator=(const DeviceGraphs&) = delete;
  virtual ~DeviceGraphs() = default;

  /// Ends a graph and begins the next.
  using Cut = std::function<void()>;

  /// Records what `work` puts on the device, on whichever thread; nothing of it is done. One graph, and one more for
  /// each Cut: what is replayed of them is replayed in their order, from the first on. Throws what it throws, and the
  /// device's own error where something in it cannot be recorded; the device is then as before.
  virtual std::vector<std::unique_ptr<DeviceGraph>> record(const std::function<void(const Cut&)>& work) = 0;
  /// Where no graph is alive: what was made for them goes too.
  virtual void release() {}
};

}  // namespace onebatch
