/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Clients whose requests nobody answers: halves of requests, datagrams that mean nothing to the service. Each such request
 * takes a place in the service until it is overdue. So who has SUSPECT_FROM more of those than were answered waits behind all
 * others until some are answered, or until the window of shares has passed without another overdue one. Only clients that are
 * at their address are accused, as far as that shows: over UDP it does not, and forging an address can put its owner behind.
 *
 * A client is an address, or an IPv6 prefix of 64 bits. There are as many as the table has room for; a newer one takes the
 * place of that which was heard of the longest ago. What senders of forged addresses push out of it is left to the share of
 * their class: see window_share(). Everything here wants classes.lock held.
 */
#ifndef TARN_CLASSES_SUSPECTS_H
#define TARN_CLASSES_SUSPECTS_H

#include <linux/compiler.h>
#include <linux/types.h>

#define SUSPECT_SETS_BITS 10
#define SUSPECT_WAYS 4

struct suspect {
	u64 client;
	u64 last;		/* ns: of the last unanswered one; 0: nobody is here */
	u32 unanswered;		/* less those answered */
};

struct suspects {
	u64 until;		/* ns: nobody is suspected from then on */
	struct suspect set[1 << SUSPECT_SETS_BITS][SUSPECT_WAYS];
};

struct classes;
struct flow_key;

/* Whether anybody is: every request asks, and hardly ever has to ask more. */
static inline bool suspects_are_there(const struct suspects *suspects, u64 now)
{
	return unlikely(now < suspects->until);
}

/* Whether the client is one, if anybody is. */
bool suspects_have(const struct classes *classes, const struct flow_key *key, u64 now);

/* A request of this client has become overdue; or one was answered, and somebody is suspected. */
void suspects_overdue(struct classes *classes, const struct flow_key *key, u64 now);
void suspects_answered(struct classes *classes, const struct flow_key *key, u64 now);

#endif
