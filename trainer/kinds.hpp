// What a program needs that brings kinds of its own: #include <onebatch/kinds.hpp>. A kind is described (its name, its
// keys, what makes it) and given to register_kind() before the configuration that names it is read.
#pragma once

#include "trainer/data/dataset_kind.hpp"
#include "trainer/data/samples_kind.hpp"
#include "trainer/models/loss_kind.hpp"
#include "trainer/models/model_kind.hpp"
#include "trainer/models/module_kind.hpp"
#include "trainer/models/own_loss.hpp"
#include "trainer/models/trainable_module.hpp"
#include "trainer/optim/optimizer_kind.hpp"
#include "trainer/optim/own_optimizer.hpp"
#include "trainer/optim/schedule_kind.hpp"
#include "trainer/settings/key_types.hpp"
