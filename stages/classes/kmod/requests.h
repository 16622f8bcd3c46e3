/* SPDX-License-Identifier: GPL-2.0 */
/* Flows and their requests: arrival, hand-on, answer, end. Everything here wants classes.lock held. */
#ifndef TARN_CLASSES_REQUESTS_H
#define TARN_CLASSES_REQUESTS_H

#include "classes.h"

/* A packet from or to a client, as the hooks have read it. */
struct packet {
	struct flow_key key;
	u32 bucket;			/* of classes.flows, by the key */
	u32 offset;			/* bytes: of the transport header */
	u32 payload;			/* bytes */
	u32 seq, end_seq;		/* TCP: of the first byte, and behind the last, which a FIN is */
	bool is_fin, is_reset;		/* TCP */
	bool resets;			/* TCP: takes this RST for one */
	bool is_proven;			/* TCP: the client is at its address */
};

enum arrival {
	PASSES,				/* goes on at once, or is none of ours */
	WAITS,				/* must be held: see request_hold() */
};

int requests_init(void);
void requests_exit(void);

/* Frees what is kept for the next requests. No request is left, and none comes. */
void requests_free_spare(struct classes *classes);

/* A packet for one of our ports has come. A request that may go on at once is in service when this returns. */
enum arrival request_arrive(struct classes *classes, const struct packet *packet, u32 class, u64 now);

/*
 * Lets a packet wait, or says that it goes on after all: the request that it belongs to was handed on meanwhile. What is
 * dropped goes to `dropped`: `held` itself, or what is late already, for its sake.
 */
enum arrival request_hold(struct classes *classes, const struct packet *packet, u32 class, u64 now, struct held *held,
			  struct list_head *dropped);

/* A packet with payload leaves for a client, or the end of the service's side of a connection. */
void request_answer(struct classes *classes, const struct packet *packet, u64 now);

/* Has a request that waits, and is not late, wait behind all others: its client has come under suspicion since. */
void request_suspect(struct classes *classes, struct request *request, u64 now);

/* Takes a waiting request out of its queue and counts it as handed on. */
void request_hand_on(struct classes *classes, struct request *request, u64 now);

/* Its packets were delivered. */
void request_delivered(struct classes *classes, struct request *request);

/* Ends requests whose answers nobody expects any more. */
void requests_expire(struct classes *classes, u64 now);

/* Takes their places from requests whose answers are likely no more. */
void requests_become_overdue(struct classes *classes, u64 now);

/* How long after it was handed on a request becomes overdue, in ns. */
u64 requests_overdue_after(const struct classes *classes);

/* Takes the packets of a request that came in by this device, or all when it is NULL. */
void request_take(struct classes *classes, struct request *request, const struct net_device *dev,
		  struct list_head *packets);

/* Takes a waiting request, with all of its packets, out for good. */
void request_discard(struct classes *classes, struct request *request, struct list_head *packets);

/* Takes what waits and came in by this device out. */
void requests_take_device(struct classes *classes, const struct net_device *dev, struct list_head *packets);

/* Frees every request; their packets go to `packets`. */
void requests_flush(struct classes *classes, struct list_head *packets);

/* Lets the window of shares go on, if it is time. */
void shares_go_on(struct classes *classes, u64 now);

static inline void shares_advance(struct classes *classes, u64 now)
{
	if (unlikely(now >= classes->next_slot))
		shares_go_on(classes, now);
}

struct held *held_alloc(void);
void held_free(struct held *held);

#endif
