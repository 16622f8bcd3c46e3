/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections whose service has switched from HTTP to another protocol (status 101: WebSocket, h2c): what comes then is no request.
 * Only what the service says counts: a client cannot leave the scheduling by what it sends. Such a flow stays here, without a request,
 * until either side ends it; of more than UPGRADED_MOST, the one is forgotten that was silent for the longest in the class that has most.
 *
 * Everything here wants classes.lock held.
 */
#ifndef TARN_CLASSES_UPGRADES_H
#define TARN_CLASSES_UPGRADES_H

#include "requests.h"

/* The answer that switches has left. */
void upgrade_begin(struct classes *classes, struct flow *flow);

/* Either side sends something. `ends`: the connection, or it begins another one with the same ports; the flow may be gone afterwards. */
void upgrade_heard(struct classes *classes, struct flow *flow, bool ends);

/* Forgets all. */
void upgrades_flush(struct classes *classes);

#endif
