// Ranks that have lastingly become slower or faster than their tables say: a new plan where that wins, or a word where
// it may not be.
#pragma once

#include "trainer/plan/drift.hpp"
#include "trainer/run/plan_book.hpp"

namespace onebatch {

class DriftFollower {
 public:
  DriftFollower(const PlanningParts& parts, ClusterTables& tables, PlanBook& book)
      : parts_(parts), tables_(tables), book_(book) {}

  /// Compares what the ranks took in a step of the full plan with what it predicted. Where some have lastingly changed
  /// and a new plan wins enough, it is made and said, or only said where it would change the result (batch.replan).
  /// True where it was made. Collective.
  bool follow(const StepTotals& totals, std::int64_t step);

 private:
  struct Gain {
    bool worth = false;
    std::size_t rank = 0;   // that is off most
    double factor = 1.0;    // by
    bool measured = false;  // the tables are of just now
  };
  bool answer(const StepTotals& totals, std::int64_t step);
  void watch();
  // What is seen promises; rank 0 decides.
  Gain gain_of_a_new_plan(const LastingDrift& lasting);
  bool may_follow(const Gain& gain);
  bool replan(const LastingDrift& lasting, const Gain& gain, std::int64_t step);
  // Whether the tables of just now make a new plan worth it, which is then followed.
  bool replan_where_it_wins(const LastingDrift& lasting);
  // Where steps lastingly take other times than the cache's tables say, the answer is not kept.
  void correct_cache(const StepTotals& totals, std::int64_t step);
  // Of a plan that is not followed any more nothing is expected.
  void look_at_edition();

  PlanningParts parts_;
  ClusterTables& tables_;
  PlanBook& book_;
  std::int64_t edition_ = 0;
  DriftWatch watch_;
  DriftWatch cache_watch_;
  bool retimed_ = false;  // the tables are newer than the plan
  bool said_ = false;
};

}  // namespace onebatch
