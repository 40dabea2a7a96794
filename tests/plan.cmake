onebatch_add_test(NAME plan_test
  SOURCES unit/cost_table_test.cpp unit/planner_test.cpp unit/lock_step_test.cpp unit/grain_test.cpp unit/idle_rank_test.cpp unit/drift_test.cpp unit/plan_check_test.cpp unit/plan_report_test.cpp unit/search_test.cpp unit/cluster_plan_test.cpp unit/memory_use_test.cpp unit/probe_cache_test.cpp unit/timing_test.cpp unit/straggler_test.cpp unit/documents_test.cpp unit/schedule_test.cpp unit/pace_test.cpp
  LIBRARIES onebatch_pure)
