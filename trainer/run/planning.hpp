// How a run plans: what devices are, what gives way where memory runs out, the plans, and devices that change.
#pragma once

#include "trainer/run/drift_follower.hpp"

namespace onebatch {

struct RunPlans {
  explicit RunPlans(const PlanningParts& parts)
      : tables(parts), memory(parts, tables), book(parts, tables, memory), drift(parts, tables, book) {}
  RunPlans(const RunPlans&) = delete;
  RunPlans& operator=(const RunPlans&) = delete;

  ClusterTables tables;
  MemoryPolicy memory;
  PlanBook book;
  DriftFollower drift;
};

}  // namespace onebatch
