// What a session finds out about its model before it trains: on rank 0, for all.
#pragma once

#include "comm/communicator.hpp"
#include "trainer/events/event_stream.hpp"
#include "trainer/replica/examine.hpp"
#include "trainer/replica/replica.hpp"

namespace onebatch {

/// What a forward of the model keeps, changes and draws. Throws AgreedError where it cannot take the samples anywhere.
/// Collective.
Examination examine_for_all(const Configuration& configuration, const Dataset& data, comm::Communicator& control);

/// Where nothing of that is known; to be said once the model has taken samples where it trains.
void warn_of_unexamined(const Examination& examination, EventStream& events);

/// Throws AgreedError where training would not be that of one large batch whatever the plan, and says it where only its
/// noise is not. Collective.
void refuse_or_say(const Examination& examination, const Configuration& configuration, comm::Communicator& control,
                   EventStream& events);

/// How far micro-batches of sequences of unlike lengths are padded. Collective.
void settle_padding(const Configuration& configuration, const Dataset& data, Replica& replica,
                    comm::Communicator& control, EventStream& events);

/// Parameters of 16 bits without a copy in float32 are likely to end in NaN.
void warn_of_short_parameters(const PrecisionConfiguration& precision, EventStream& events);

}  // namespace onebatch
