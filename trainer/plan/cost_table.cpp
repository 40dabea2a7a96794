#include "trainer/plan/cost_table.hpp"
