// All that a program needs: #include <onebatch/trainer.hpp>. Free of LibTorch.
#pragma once

#include "trainer/base/configuration.hpp"
#include "trainer/base/error.hpp"
#include "trainer/base/results.hpp"
#include "trainer/device/build_and_host.hpp"
#include "trainer/documents/documents.hpp"
#include "trainer/events/event_stream.hpp"
#include "trainer/plan/plan_report.hpp"
#include "trainer/plan/planner.hpp"
#include "trainer/run/built_in_kinds.hpp"
#include "trainer/run/session.hpp"
#include "trainer/settings/keys.hpp"
