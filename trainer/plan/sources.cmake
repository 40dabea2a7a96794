target_sources(onebatch_pure PRIVATE plan/cost_table.cpp plan/plan_cluster.cpp plan/plan_report.cpp plan/planner.cpp plan/rank_table.cpp plan/reachable_sums.cpp plan/share_search.cpp)
